"""The C++ reference: Markdown for each layer, out of Doxygen's XML of the public headers.

Public are the headers that mezzo/mezzo.h includes. Names keep the order of their header. As in the
headers, a comment is about the declarations below it up to the next blank line, and a paragraph of
`//` is about all that follows. Undocumented classes, such as entries of type lists, and the names
of the C interface, mezzo_*, are left out.
"""
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

SETTINGS = """
QUIET = YES
GENERATE_HTML = NO
GENERATE_LATEX = NO
GENERATE_XML = YES
XML_PROGRAMLISTING = NO
EXTRACT_ALL = YES
MACRO_EXPANSION = YES
EXPAND_ONLY_PREDEF = YES
PREDEFINED = MEZZO_API= "TORCH_MODULE(Name)=using Name = torch::nn::ModuleHolder<Name##Impl>"
SEARCH_INCLUDES = NO
INCLUDE_GRAPH = NO
INCLUDED_BY_GRAPH = NO
WARN_AS_ERROR = FAIL_ON_WARNINGS
"""
CLASSES = ("class", "struct", "concept")
INTERNAL = re.compile(r"(^|::)(detail|kernels|std|c10d|torch|mezzo_\w+)(::|$)|<")
LONGEST_LINE = 76  # of a signature


def public_headers(root, header="mezzo/mezzo.h"):
    """The header and those that it includes, each after its own."""
    found = {}
    for name in re.findall(r'#include "(mezzo/[^"]+)"', (root / header).read_text()):
        found.update(dict.fromkeys(public_headers(root, name)))
    return [*found, header]


def escaped(text):
    """Text as Markdown that shows it unchanged."""
    return re.sub(r"([\\`*_\[\]|])", r"\\\1", text).replace("<", "&lt;").replace(">", "&gt;")


def code(element):
    """The text of an element of C++, spaced as in the sources."""
    text = " ".join("".join(element.itertext()).split()) if element is not None else ""
    text = text.replace("< ", "<").replace(" >", ">").replace("&lt;", "<")
    text = re.sub(r"(?<=[\w>]) ([&*]+)(?=\w)", r"\1 ", text)
    return re.sub(r" ([&*]+)(?=[ ,>)]|$)", r"\1", text).strip()


def fenced(lines):
    return "\n".join(["```cpp", *lines, "```"])


def table(title, rows):
    lines = [f"| {left} | {' '.join(right.split())} |" for left, right in rows]
    return "\n".join([f"| {title} | |", "|---|---|", *lines])


class Name:
    """A public class, concept, function, variable, enumeration or alias."""

    def __init__(self, element):
        self.element, self.kind = element, element.get("kind")
        self.full = element.findtext("compoundname") or element.findtext("qualifiedname")
        self.name = self.full.split("::")[-1]
        place = element.find("location")
        self.header = place.get("declfile") or place.get("file")
        self.line = int(place.get("declline") or place.get("line"))
        self.members = []
        self.holder = None  # of a module's class GraphConvImpl the alias GraphConv

    @property
    def shown(self):
        return (self.holder or self).full.removeprefix("mezzo::")

    @property
    def with_class(self):
        return "::".join(part.removesuffix("Impl") for part in self.full.split("::")[-2:])

    @property
    def anchor(self):
        return re.sub(r"[^\w.]", "-", (self.holder or self).full.replace("::", "."))

    @property
    def mark(self):
        """An anchor without a heading."""
        return f'<span id="{self.anchor}"></span>'

    @property
    def template(self):
        def text(parameter):
            name, value = (code(parameter.find(tag)) for tag in ("declname", "defval"))
            return f"{code(parameter.find('type'))} {name}".strip() + (value and f" = {value}")

        parameters = self.element.find("templateparamlist")
        return [f"template <{', '.join(map(text, parameters))}>"] if parameters is not None else []

    @property
    def signature(self):
        """The lines of the declaration."""
        element = self.element
        kind = code(element.find("type"))
        if self.kind == "concept":
            return code(element.find("initializer")).splitlines()
        if self.kind in CLASSES:
            bases = [code(base) for base in element.findall("basecompoundref")]
            head = f"{self.kind} {self.name}" + (f" : public {', '.join(bases)}" if bases else "")
            return [*self.template, f"{head};", *(self.holder.signature if self.holder else ())]
        if self.kind == "enum":
            values = ", ".join(value.findtext("name") for value in element.iter("enumvalue"))
            return [f"enum class {self.name} {{ {values} }};"]
        if self.kind == "typedef":
            return [*self.template, f"using {self.name} = {kind};"]
        before = [word for word in ("static", "explicit") if element.get(word) == "yes"]
        head = " ".join([*before, *([kind] if kind else []), self.name])
        if self.kind == "variable":
            return [f"{head} {code(element.find('initializer'))}".strip() + ";"]
        parameters = []
        for parameter in element.findall("param"):
            name, value = (code(parameter.find(tag)) for tag in ("declname", "defval"))
            parameters.append(f"{code(parameter.find('type'))} {name}".strip()
                              + (value and f" = {value}"))
        end = (element.findtext("argsstring") or "").rpartition(")")[2].replace("=", " = ")
        line = f"{head}({', '.join(parameters)}){end};"
        if len(line) <= LONGEST_LINE:
            return [*self.template, line]
        last = len(parameters) - 1
        return [*self.template, f"{head}(", *(f"    {text}{',' if i < last else f'){end};'}"
                                              for i, text in enumerate(parameters))]


class Reference:
    """All public names, and the pages that have them."""

    def __init__(self, root, work):
        self.headers = public_headers(root)
        self.sources = {header: (root / header).read_text().splitlines() for header in self.headers}
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        subprocess.run(["doxygen", "-"], text=True, cwd=root, check=True, input="\n".join(
            [SETTINGS, f"OUTPUT_DIRECTORY = {work}", "INPUT = " + " ".join(self.headers)]))
        compounds = [compound for path in sorted((work / "xml").glob("*.xml"))
                     for compound in ElementTree.parse(path).getroot().iter("compounddef")
                     if compound.get("prot") != "private"
                     and not INTERNAL.search(compound.findtext("compoundname"))]
        self.by_layer, self.links = {}, {}
        for name in self.nested([c for c in compounds if c.get("kind") in CLASSES],
                                [c for c in compounds if c.get("kind") == "namespace"]):
            layer = name.header.split("/")[1] if name.header.count("/") > 1 else "core"
            self.by_layer.setdefault(layer, []).append(name)
            self.remember(name, f"{layer}.md")

    def nested(self, classes, namespaces):
        """The names outside of classes; all others are their members."""
        top = [name for namespace in namespaces for name in self.members_of(namespace)]
        found = {name.full: name for name in map(Name, classes)}
        for element, name in zip(classes, found.values()):
            name.members = [] if name.kind == "concept" else self.members_of(element)
        for name in found.values():
            outer = found.get(name.full.rpartition("::")[0])
            (outer.members if outer else top).append(name)
        aliases = {name.full: name for name in top if name.kind == "typedef"}
        for name in found.values():
            name.members.sort(key=lambda member: member.line)
            name.holder = name.full.endswith("Impl") and aliases.get(name.full[:-len("Impl")])
        holders = [name.holder for name in found.values()]
        return sorted((name for name in top if name not in holders),
                      key=lambda name: (self.headers.index(name.header), name.line))

    @staticmethod
    def members_of(compound):
        """The public members, less those that no reader calls by name."""
        names = [Name(element) for element in compound.iter("memberdef")
                 if element.get("prot") == "public" and element.get("kind") != "friend"
                 and not (element.findtext("argsstring") or "").endswith("=delete")]
        return [name for name in names if not name.name.startswith(("~", "@", "operator="))
                and name.name not in ("reset", "pretty_print")]

    def remember(self, name, page):
        for known in (name, name.holder):
            if known:
                self.links[known.element.get("id")] = f"{page}#{name.anchor}"
        for value in name.element.iter("enumvalue"):
            self.links[value.get("id")] = f"{page}#{name.anchor}"
        for member in name.members:
            self.remember(member, page)

    def text(self, element):
        """An element of a description, and what it contains, as Markdown."""
        inside = escaped(element.text or "") + "".join(
            self.text(child) + escaped(child.tail or "") for child in element)
        if element.tag == "computeroutput":
            return f"`{''.join(element.itertext())}`"
        # Doxygen takes Graph in `Graph attention` for the class.
        if (element.tag == "ref" and element.get("refid") in self.links
                and re.search(r"[a-z][A-Z]|::|\(|_", "".join(element.itertext()))):
            return f"[{inside}]({self.links[element.get('refid')]})"
        if element.tag == "emphasis":
            return f"*{inside}*"
        if element.tag == "verbatim":
            return f"\n\n{fenced(element.text.rstrip().splitlines())}\n\n"
        if element.tag == "listitem":
            return f"- {' '.join(inside.split())}\n"
        if element.tag == "blockquote":  # a comment that begins with >
            return f"&gt; {inside.strip()}"
        return f"\n\n{inside}\n\n" if element.tag in ("para", "itemizedlist") else inside

    def description(self, element):
        parts = [element.find(tag) for tag in ("briefdescription", "detaileddescription")]
        text = "".join(self.text(part) for part in parts if part is not None)
        return re.sub(r"\n\s*\n", "\n\n", text).strip()

    def notes_before(self, name, previous):
        """The paragraphs of `//` after the previous name, and whether the two are apart."""
        lines = self.sources[name.header]
        begin = previous.line if previous else next(
            i for i, line in enumerate(lines) if line.startswith("namespace mezzo"))
        gap = lines[begin:name.line - 1]
        notes = re.findall(r"^((?: *// .*\n)+)\n", "\n".join([*gap, ""]), re.MULTILINE)
        return [self.paragraph(note) for note in notes], "" in gap

    @staticmethod
    def paragraph(comment):
        words = re.sub(r"^ *///? ", "", comment, flags=re.MULTILINE).split()
        return escaped(" ".join(words)).replace(r"\`", "`")

    def listing(self, names, level, previous=None):
        """The entries of names: at level 3 those of a header, below those of a class."""
        block = Block(level)
        for name in names:
            notes, apart = self.notes_before(name, previous)
            previous = name
            about = self.description(name.element)
            _, beside, comment = self.sources[name.header][name.line - 1].partition("///<")
            if notes:
                block.end()
                block.parts += notes
            if level == 3 and not about and (apart or not block.lines):
                if name.kind == "function":
                    raise ValueError(f"{name.header}:{name.line}: {name.full} has no comment")
            elif name.kind in (*CLASSES, "enum"):
                block.end()
                block.title = None
                block.parts.append(self.entry(name, level))
            elif name.kind == "variable":
                block.add_field(name, about)
            elif about and (level == 3 or not beside):
                block.begin(name, about)
            else:
                block.add(name, comment.strip(), apart)
        block.end()
        return block.parts

    def entry(self, name, level):
        """A class, a concept or an enumeration."""
        parts = [f"{'#' * level} {escaped(name.shown)} {{ #{name.anchor} }}",
                 fenced(name.signature), self.description(name.element)]
        values = [(f"`{value.findtext('name')}`", self.description(value))
                  for value in name.element.iter("enumvalue")]
        if any(about for _, about in values):
            parts.append(table("value", values))
        parts += self.listing(name.members, level + 1, previous=name)
        return "\n\n".join(part for part in parts if part)

    def page(self, layer, about):
        """The Markdown of a layer."""
        parts = [f"# {layer}", about]
        for header in dict.fromkeys(name.header for name in self.by_layer[layer]):
            names = [name for name in self.by_layer[layer] if name.header == header]
            entries = self.listing(names, 3)
            if entries:
                source = "\n".join(self.sources[header])
                about = re.search(r"((?:^/// .*\n)*)^namespace mezzo", source, re.MULTILINE)[1]
                parts += [f"## {header.split('/', 2)[-1]} {{ #{header} }}",
                          self.paragraph(about), *entries]
        return "\n\n".join(parts) + "\n"

    def index(self, about):
        """The Markdown of a page that lists the layers; about: what each holds."""
        rows = [(f"[{layer}]({layer}.md)", text) for layer, text in about.items()
                if layer in self.by_layer]
        return ("# C++ reference\n\nWhat `#include <mezzo/mezzo.h>` declares, by layers.\n\n"
                + table("layer", rows) + "\n")


class Block:
    """The parts of a listing, and the fields or signatures that will be its next part."""

    def __init__(self, level):
        self.level, self.title, self.parts = level, None, []
        self.marks, self.lines, self.about, self.fields = [], [], "", []

    def end(self):
        if self.marks:
            self.parts.append("".join(self.marks))
        if self.lines:
            self.parts.append(fenced(self.lines))
        if self.about:
            self.parts.append(self.about)
        if self.fields:
            self.parts.append(table("field", self.fields))
        self.marks, self.lines, self.about, self.fields = [], [], "", []

    def begin(self, name, about):
        """A declaration with a comment of its own."""
        self.end()
        if self.title != name.name:
            label = escaped(name.shown if self.level == 3 else name.with_class)
            self.parts.append(f"{'#' * self.level} {label} {{ #{name.anchor} }}")
        self.title, self.lines, self.about = name.name, [*name.signature], about

    def add(self, name, comment, apart):
        """A declaration without one, or with a short one beside it."""
        if self.fields or self.about and (apart or comment):
            self.end()
        if name.name != self.title and name.mark not in self.marks:
            self.marks.append(name.mark)
        if not self.about:
            self.title = None
        self.lines += [f"// {comment}"] * bool(comment) + name.signature

    def add_field(self, name, about):
        if self.lines:
            self.end()
        self.title = None
        kind, _, value = " ".join(name.signature).rstrip(";").partition(f" {name.name} ")
        declared = f"{kind.removesuffix(f' {name.name}')} {value}".strip()
        self.fields.append((f"{name.mark}`{name.name}`", f"`{declared}`<br>{about}"))

"""The pages that are not in docs/: README.md and other files of the repository, the programs, and
the references. Links between files become links between pages; a link to a file that has no page
becomes its text. MkDocs calls the functions on_*."""
import json
import pathlib
import posixpath
import re
import sys

from mkdocs.structure.files import File

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from cpp_reference import Reference  # noqa: E402

PYTHON = {
    "index.md": """# Python reference

[The package](../python.md) is imported as `mezzo`. Operators: [mezzo.ops](ops.md); layers:
[mezzo.nn](nn.md); mini-batches: [loaders](loaders.md); models of other libraries:
[accelerate](accelerate.md).

::: mezzo.Graph
    options: {heading_level: 2}
""",
    "nn.md": "::: mezzo.nn\n    options: {heading_level: 1}\n",
    "loaders.md": "# Loaders\n\n::: mezzo.NeighborLoader\n\n::: mezzo.ClusterLoader\n\n"
                  "::: mezzo.SaintLoader\n",
    "ops.md": "::: mezzo.ops\n    options: {heading_level: 1}\n",
    "accelerate.md": "# accelerate\n\n::: mezzo.pyg\n\n::: mezzo.dgl\n",
}
page_of = {  # of a file or folder of the repository
    "docs/decisions": "decisions/index.md",
    "docs/tutorials": "tutorials/first-model-cpp.md",
    "examples": "examples/index.md",
    "mezzo": "cpp/index.md",
}
origin_of = {}  # of a page


def title(page):
    return re.search(r"^# (.*)$", page.read_text(), re.MULTILINE)[1]


def copies():
    """The files of the repository that become pages, and their Markdown."""
    for name, uri in (("README.md", "index.md"), ("examples/README.md", "examples/index.md"),
                      ("CONTRIBUTING.md", "contributing.md"), ("CHANGELOG.md", "changelog.md")):
        yield name, uri, (ROOT / name).read_text()
    for path in sorted((ROOT / "examples").glob("**/*")):
        language = {".c": "c", ".cpp": "cpp", ".h": "cpp", ".py": "python"}.get(path.suffix)
        name = str(path.relative_to(ROOT))
        if language:
            yield name, f"{name}.md", f"# {path.name}\n\n```{language}\n{path.read_text()}```\n"
    name = "examples/first_steps.ipynb"
    yield name, f"{name}.md", "\n\n".join(notebook(ROOT / name))


def notebook(path):
    """The Markdown of a notebook, with its outputs."""
    for cell in json.loads(path.read_text())["cells"]:
        source = "".join(cell["source"])
        yield source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```"
        data = [output.get("data", {"text/plain": output.get("text")})
                for output in cell.get("outputs", ())]
        text = "".join("".join(each["text/plain"]).rstrip() + "\n" for each in data
                       if "image/svg+xml" not in each)
        yield f"```text\n{text}```" if text else ""
        yield from ("".join(each["image/svg+xml"]) for each in data if "image/svg+xml" in each)


def references():
    """Pages and their Markdown."""
    decisions = "".join(f"- [{title(path)}]({path.name})\n"
                        for path in sorted((ROOT / "docs/decisions").glob("*.md")))
    yield "decisions/index.md", f"# Decisions\n\nWhy things are as they are.\n\n{decisions}"
    for page, text in PYTHON.items():
        yield f"reference/{page}", text

    architecture = (ROOT / "docs/architecture.md").read_text()
    about = dict(re.findall(r"^\| `(\w+)/` \| (.*?) \|", architecture, re.MULTILINE))
    reference = Reference(ROOT, ROOT / "build/docs/doxygen")
    for layer, names in reference.by_layer.items():
        page_of[f"mezzo/{layer}"] = f"cpp/{layer}.md"
        for header in {name.header for name in names}:
            page_of[header] = f"cpp/{layer}.md#{header}"
        yield f"cpp/{layer}.md", reference.page(layer, about[layer])
    yield "cpp/index.md", reference.index(about)


def on_files(files, config):
    for path in (ROOT / "docs").glob("**/*.md"):
        name = str(path.relative_to(ROOT))
        origin_of[name.removeprefix("docs/")] = name
    for name, uri, text in copies():
        origin_of[uri] = name
        hide = "---\nhide: [navigation]\n---\n" if uri == "index.md" else ""
        files.append(File.generated(config, uri, content=hide + text))
    for uri, text in references():
        files.append(File.generated(config, uri, content=text))
    for name in ("site.css", "logo.svg", "iframe-worker.js"):
        files.append(File.generated(config, f"assets/{name}",
                                    abs_src_path=str(pathlib.Path(__file__).parent / name)))
    page_of.update((origin, uri) for uri, origin in origin_of.items())
    return files


def linked(match, uri):
    """A link of a file as one of its page."""
    text, target = match.groups()
    path, mark, anchor = target.partition("#")
    if re.match(r"\w+:", target) or not path:
        return match[0]
    name = posixpath.normpath(posixpath.join(posixpath.dirname(origin_of[uri]), path))
    page = page_of.get(name)
    if page is None and name.startswith("docs/") and (ROOT / name).is_file():
        page = name.removeprefix("docs/")  # a picture
    if page is None:
        return text if (ROOT / name).exists() else match[0]
    there = posixpath.relpath(page, posixpath.dirname(uri) or ".")
    return f"[{text}]({there}{mark}{anchor})"


def on_page_markdown(markdown, page, config, files):
    uri = page.file.src_uri
    if uri not in origin_of:
        return markdown
    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    for i in range(0, len(parts), 2):
        parts[i] = re.sub(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)",
                          lambda match: linked(match, uri), parts[i])
        # Python-Markdown wants four spaces before an item of an inner list.
        parts[i] = re.sub(r"^  (?=- )", "    ", parts[i], flags=re.MULTILINE)
        # GitHub wants a backslash before | in a table's code, Python-Markdown none.
        parts[i] = re.sub(r"`[^`\n]*\\\|[^`\n]*`",
                          lambda code: code[0].replace("\\|", "|"), parts[i])
    return "".join(parts)

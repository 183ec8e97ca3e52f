/* mezzo_predictor.h from C: the class of a node before an edge comes, with it, and after it is
   gone. argv: checkpoint, data set. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <mezzo/predict/mezzo_predictor.h>

static void check(mezzo_status status) {
  if (status == MEZZO_OK) return;
  fprintf(stderr, "predictor_c: %s\n", mezzo_last_error());
  exit(status);
}

static int64_t largest(const float* logits, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 1; i < count; ++i) best = logits[i] > logits[best] ? i : best;
  return best;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    fprintf(stderr, "usage: predictor_c CHECKPOINT DATA\n");
    return MEZZO_INVALID_ARGUMENT;
  }
  const mezzo_predictor_options options = {.resident = 1, .precision = "fp32"};
  mezzo_predictor* predictor = NULL;
  check(mezzo_predictor_open(argv[1], argv[2], &options, &predictor));
  mezzo_predictor_counts counts;
  check(mezzo_predictor_get_counts(predictor, &counts));
  printf("mezzo %s: %" PRId64 " nodes, %" PRId64 " edges, %" PRId64 " classes\n", mezzo_version(),
         counts.nodes, counts.edges, counts.classes);

  const int64_t node = 7, other = 3;
  float* logits = malloc(3 * (size_t)counts.classes * sizeof(float));
  if (logits == NULL) return MEZZO_OUT_OF_MEMORY;
  float *with_edge = logits + counts.classes, *after = with_edge + counts.classes;
  check(mezzo_predictor_predict(predictor, &node, 1, logits, counts.classes));
  check(mezzo_predictor_add_edges(predictor, &other, &node, 1, NULL, 0));
  check(mezzo_predictor_predict(predictor, &node, 1, with_edge, counts.classes));
  check(mezzo_predictor_remove_edges(predictor, &other, &node, 1));
  check(mezzo_predictor_predict(predictor, &node, 1, after, counts.classes));

  const size_t size = (size_t)counts.classes * sizeof(float);
  printf("class %" PRId64 ", with the edge %" PRId64 "\n", largest(logits, counts.classes),
         largest(with_edge, counts.classes));
  printf("%s\n", memcmp(logits, after, size) == 0 && memcmp(logits, with_edge, size) != 0
                     ? "same bits"
                     : "other bits");
  free(logits);
  mezzo_predictor_free(predictor);
  return 0;
}

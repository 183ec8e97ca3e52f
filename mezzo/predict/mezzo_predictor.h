#pragma once

// mezzo::Predictor (predictor.h) for programs in C99, and for languages that call C.

#include <stdint.h>

#include "mezzo/core/export.h"

#ifdef __cplusplus
extern "C" {
#endif

/// What a call returns; up to MEZZO_INTERNAL_ERROR the exit codes of the command. A call that
/// returns another than MEZZO_OK writes no result, and one with MEZZO_INVALID_ARGUMENT changes
/// nothing but mezzo_last_error().
typedef enum mezzo_status {
  MEZZO_OK = 0,
  MEZZO_INVALID_ARGUMENT = 2,  ///< a null pointer, or a wrong size, id, name or option
  MEZZO_IO_ERROR = 3,          ///< a file is missing, truncated or corrupt
  MEZZO_NUMERIC_ERROR = 4,     ///< inf or NaN
  MEZZO_INTERNAL_ERROR = 70,   ///< a bug of the library, or of one that it uses
  MEZZO_OUT_OF_MEMORY = 71
} mezzo_status;

/// A trained model and a graph that may change. Functions that take it as const may run in any
/// number of threads at the same time; the others may be called at any time too, except
/// mezzo_predictor_free().
typedef struct mezzo_predictor mezzo_predictor;

/// The options of a mezzo::Predictor. A NULL pointer to it means { 0, NULL }.
typedef struct mezzo_predictor_options {
  int resident;           ///< not 0: keep the rows of all layers but the last in memory
  const char* precision;  ///< "fp32", "bf16" or "fp16"; NULL: that of the training
} mezzo_predictor_options;

/// Sizes of a predictor.
typedef struct mezzo_predictor_counts {
  int64_t nodes, edges;  ///< with self loops that the training adds; 0 without a graph
  int64_t features;      ///< F, numbers of a node
  int64_t classes;       ///< C, logits of a node, or of a pair of nodes
} mezzo_predictor_counts;

/// "major.minor.patch" of the library.
MEZZO_API const char* mezzo_version(void);

/// The message of the last call that failed in the calling thread, one line; "" before the first.
/// Valid until the next failure there.
MEZZO_API const char* mezzo_last_error(void);

/// Sets *predictor to a new one, from a checkpoint of `mezzo train`. dataset: a path or name of
/// docs/data-formats.md, read as `mezzo predict` reads it; NULL: the data set of the training.
MEZZO_API mezzo_status mezzo_predictor_open(const char* checkpoint, const char* dataset,
                                            const mezzo_predictor_options* options,
                                            mezzo_predictor** predictor);

/// The same without a graph, for mezzo_predictor_predict_graph() alone. options->resident: 0.
MEZZO_API mezzo_status mezzo_predictor_open_model(const char* checkpoint,
                                                  const mezzo_predictor_options* options,
                                                  mezzo_predictor** predictor);

/// Frees it; no call may be running. NULL: does nothing.
MEZZO_API void mezzo_predictor_free(mezzo_predictor* predictor);

/// Sets *counts.
MEZZO_API mezzo_status mezzo_predictor_get_counts(const mezzo_predictor* predictor,
                                                  mezzo_predictor_counts* counts);

/// Writes the logits, or numbers, of nodes to logits: a row of C for each id. num_logits: the size
/// of the buffer, num_nodes * C. For models of nodes, as the next two.
MEZZO_API mezzo_status mezzo_predictor_predict(const mezzo_predictor* predictor,
                                               const int64_t* nodes, int64_t num_nodes,
                                               float* logits, int64_t num_logits);

/// The same of all nodes. num_logits: nodes * C.
MEZZO_API mezzo_status mezzo_predictor_predict_all(const mezzo_predictor* predictor, float* logits,
                                                   int64_t num_logits);

/// An estimate from sampled neighbours. fanouts: neighbours of a node, at most, one number for each
/// layer of the model, input layer first; -1: all. Equal for equal seeds.
MEZZO_API mezzo_status mezzo_predictor_predict_sampled(const mezzo_predictor* predictor,
                                                       const int64_t* nodes, int64_t num_nodes,
                                                       const int64_t* fanouts, int64_t num_fanouts,
                                                       uint64_t seed, float* logits,
                                                       int64_t num_logits);

/// Writes the logits, or numbers, of pairs of nodes, which need not be edges: a row of C for each
/// pair. num_logits: num_pairs * C. For models of edges and links. features: num_pairs rows of
/// `width` numbers, if the model reads features of the edges that it has outputs for; else NULL and
/// 0. types: of the links, if they have several; NULL: all 0.
MEZZO_API mezzo_status mezzo_predictor_predict_edges(const mezzo_predictor* predictor,
                                                     const int64_t* src, const int64_t* dst,
                                                     int64_t num_pairs, const float* features,
                                                     int64_t width, const int64_t* types,
                                                     float* logits, int64_t num_logits);

/// The logits of all nodes of another graph, of edges from src[i] to dst[i], which is taken as it
/// is: with the self loops and normalised features of the training. features: num_nodes rows of
/// `width` numbers. num_logits: num_nodes * C. For models that read no features of edges.
MEZZO_API mezzo_status mezzo_predictor_predict_graph(const mezzo_predictor* predictor,
                                                     const int64_t* src, const int64_t* dst,
                                                     int64_t num_edges, const float* features,
                                                     int64_t num_nodes, int64_t width,
                                                     float* logits, int64_t num_logits);

/// Adds an edge from src[i] to dst[i] for each i, beside equal ones. rows: of `width` numbers for
/// each edge, if the edges of the data set have weights (width 1) or features that the model reads;
/// else NULL and 0.
MEZZO_API mezzo_status mezzo_predictor_add_edges(mezzo_predictor* predictor, const int64_t* src,
                                                 const int64_t* dst, int64_t num_edges,
                                                 const float* rows, int64_t width);

/// Removes one edge for each pair, of parallel ones the first.
MEZZO_API mezzo_status mezzo_predictor_remove_edges(mezzo_predictor* predictor, const int64_t* src,
                                                    const int64_t* dst, int64_t num_edges);

/// Replaces the features of distinct nodes. features: num_nodes rows of `width` = F finite numbers.
MEZZO_API mezzo_status mezzo_predictor_set_features(mezzo_predictor* predictor,
                                                    const int64_t* nodes, int64_t num_nodes,
                                                    const float* features, int64_t width);

/// Adds nodes without edges, and sets *first, unless it is NULL, to the id of the first of them.
/// features: as above.
MEZZO_API mezzo_status mezzo_predictor_add_nodes(mezzo_predictor* predictor, const float* features,
                                                 int64_t num_nodes, int64_t width, int64_t* first);

#ifdef __cplusplus
}
#endif

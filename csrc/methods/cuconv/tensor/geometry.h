// How a sweep is shared out to tiles, for the planner and the launcher.
//
// Results are counted by places: rows and images lie one after another with the padding between them, which
// the end of one shares with the begin of the next. So the source value that a tap meets lies at the result's
// place plus an offset that is the tap's alone, and the operand of a tap's product is the source's window in
// shared memory from that offset on, not copied anew. Places without a result are computed and dropped. Where
// the stride is not 1, rows and columns of the source are dealt out by their residues, a class after another.
#pragma once
#include <algorithm>

#include "methods/cuconv/tensor/tiles.h"
#include "problem/divide.h"
#include "problem/sweep.h"

namespace convx::cuconv::tensor {

// Places of a line, or lines of an image.
inline int64_t pitch_of(int64_t source, int64_t result, int64_t stride, int64_t span, int64_t before) {
  if (stride > 1) return divide_up((result - 1) * stride + span, stride);
  const int64_t after = result - 1 + span - before - source;
  return std::max(source + std::max({before, after, int64_t{0}}), result);
}

// What a plan chooses beside its tile.
struct Way {
  int64_t planes;
  int64_t depth;         // steps of channels of a stage: several where there is one tap
  int64_t segment_taps;  // taps whose filters come together, and between whose products threads meet
  int64_t together;      // neighbouring places, one or two, that a load brings
};

// Pairs of places need pairs of columns that are aligned alike in every row, channel and image; tensors begin
// at multiples of 16 bytes.
inline bool has_pairs(const Sweep& s) {
  return s.stride_h == 1 && s.stride_w == 1 && s.source_width % 2 == 0 && s.top >= 0 && s.left >= 0;
}

struct Geometry {
  int64_t depth, stage_taps;                 // steps of channels of a stage, and all their taps
  int64_t steps, stages, plane_stages;       // of all channels; of a plane of partial sums
  int64_t pitch, image_lines, image_places;  // places of a line; lines and places of an image
  int64_t residues_down, residues_across;    // classes of rows and columns that taps meet
  int64_t class_places, places;              // of a window: of one class, of all
  int64_t together, items;                   // places that a load brings; such groups of a window
  int64_t images;                            // that a tile's places are of, at most
  int64_t m_tiles, row_tiles, column_tiles, planes, blocks;
  int64_t segments, batches, buffers;  // of a stage's taps; of its source; stages in memory at once
  int64_t table_bytes, source_bytes, filter_bytes, shared_bytes;
};

template <Precision Kind, class Tile>
Geometry geometry_of(const Sweep& s, const Way& way) {
  Geometry g{};
  g.depth = way.depth;
  g.stage_taps = way.depth * s.taps();
  g.steps = divide_up(s.source_channels, step_channels(Kind));
  g.stages = divide_up(g.steps, way.depth);
  g.planes = way.planes;
  g.plane_stages = divide_up(g.stages, way.planes);
  const int64_t span_h = (s.filter_height - 1) * s.dilation_h + 1;
  const int64_t span_w = (s.filter_width - 1) * s.dilation_w + 1;
  g.pitch = pitch_of(s.source_width, s.result_width, s.stride_w, span_w, s.left);
  g.image_lines = pitch_of(s.source_height, s.result_height, s.stride_h, span_h, s.top);
  g.image_places = g.image_lines * g.pitch;
  g.residues_down = std::min(s.stride_h, s.filter_height);
  g.residues_across = std::min(s.stride_w, s.filter_width);
  const int64_t farthest = (span_h - 1) / s.stride_h * g.pitch + (span_w - 1) / s.stride_w;
  g.class_places = Tile::kColumns + farthest;
  g.places = g.residues_down * g.residues_across * g.class_places;
  g.together = way.together;
  // Pairs begin at even columns of the source, wherever the window does.
  g.items = way.together == 2 ? g.places / 2 + 1 : g.places;
  const int64_t all_places = s.batch * g.image_places;
  g.images = std::min(s.batch, (g.class_places + g.image_places - 2) / g.image_places + 1);
  g.m_tiles = divide_up(s.result_channels, kFilterTile);
  g.row_tiles = divide_up(g.m_tiles, Tile::kGroups);
  g.column_tiles = divide_up(all_places, Tile::kColumns);
  g.blocks = g.row_tiles * g.column_tiles * way.planes * s.groups;
  g.segments = divide_up(g.stage_taps, way.segment_taps);
  g.batches = divide_up(way.depth * g.items, Tile::kLoaders * items_each<Kind, Tile>(way.together));
  // Products of the segment before may still read a stage whose place the first batch takes.
  g.buffers = g.batches < g.segments ? 2 : 3;
  g.table_bytes = round_up((g.items * way.together + g.stage_taps + Tile::kColumns) * 4, 128);
  g.source_bytes = way.depth * matrix::parts(Kind) * kPieces * g.places * kPieceBytes;
  g.filter_bytes = way.segment_taps * Tile::kGroups * filter_tile_bytes(Kind);
  const int64_t stages = round_up(g.buffers * g.source_bytes, 128) + kFilterStages * g.filter_bytes;
  g.shared_bytes = g.table_bytes + std::max<int64_t>(stages, Tile::kSumBytes);
  return g;
}

}  // namespace convx::cuconv::tensor

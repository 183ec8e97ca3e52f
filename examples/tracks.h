#pragma once

#include <array>
#include <numbers>

#include <mezzo/mezzo.h>

/// A simulated detector of particles, for tracks.cpp and own_edge_model.cpp.
namespace tracks {

using torch::Tensor;

constexpr int64_t kParticles = 60, kLayers = 8;

inline Tensor wrapped(const Tensor& angle) {
  return torch::remainder(angle + std::numbers::pi, 2 * std::numbers::pi) - std::numbers::pi;
}

/// Where helices from the beam cross cylindrical layers: radius, azimuth and z, with noise, float32
/// [events, particles, layers] each.
inline std::array<Tensor, 3> draw_hits(int64_t events) {
  const auto uniform = [events](double least, double most) {
    return torch::rand({events, kParticles, 1}) * (most - least) + least;
  };
  const Tensor curvature = uniform(-0.4, 0.4), slope = uniform(-1, 1), start = uniform(-0.05, 0.05);
  const Tensor radius = torch::linspace(0.1, 1, kLayers).expand({events, kParticles, kLayers});
  const Tensor angle = torch::asin(radius * curvature);
  const Tensor z = start + slope * torch::where(curvature == 0, radius, angle / curvature);
  const Tensor phi = uniform(-std::numbers::pi, std::numbers::pi) + angle;
  return {radius, phi + 1e-3 * torch::randn_like(phi), z + 1e-3 * torch::randn_like(z)};
}

/// Each edge joins two hits on neighbouring layers; its class is whether one particle made both.
/// For each such edge one runs back, without a label.
inline mezzo::Dataset simulate(int64_t events) {
  const auto [radii, phis, zs] = draw_hits(events);
  // Candidates: pairs of hits of neighbouring layers that are near each other.
  const auto distance = [](const Tensor& x) {  // [events, inner, outer, layers - 1]
    return x.unsqueeze(1).slice(3, 1) - x.unsqueeze(2).slice(3, 0, -1);
  };
  const Tensor near = (wrapped(distance(phis)).abs() < 0.2) & (distance(zs).abs() < 0.3);
  const auto place = near.nonzero().unbind(1);
  const Tensor &event = place[0], &layer = place[3];
  const Tensor src = (event * kParticles + place[1]) * kLayers + layer;
  const Tensor dst = (event * kParticles + place[2]) * kLayers + layer + 1;

  mezzo::Dataset data;
  data.name = "tracks";
  const Tensor radius = radii.flatten(), phi = phis.flatten(), z = zs.flatten();
  data.num_nodes = radius.numel();
  data.features = torch::stack({radius, torch::cos(phi), torch::sin(phi), z}, 1);
  // Messages run both ways; the second half of the edges has no labels.
  data.src = torch::cat({src, dst});
  data.dst = torch::cat({dst, src});
  const auto step = [&](const Tensor& x) {
    return x.index_select(0, dst) - x.index_select(0, src);
  };
  const Tensor turn = wrapped(step(phi)) / step(radius), climb = step(z) / step(radius);
  const Tensor origin = z.index_select(0, src) - climb * radius.index_select(0, src);
  data.edge_features = torch::stack({turn, climb, origin}, 1).repeat({2, 1});

  data.target = mezzo::TaskTarget::kEdge;
  const Tensor none = torch::full({src.numel()}, mezzo::kNoLabel);
  data.labels = torch::cat({(place[1] == place[2]).to(torch::kLong), none});
  data.num_classes = 2;
  data.class_names = {"other", "track"};
  const Tensor events_of_edges = torch::cat({event, none});
  const auto mask = [&](int64_t from, int64_t to) {
    return ((events_of_edges >= from) & (events_of_edges < to)).unsqueeze(1);
  };
  data.train_masks = mask(0, events * 3 / 5);
  data.val_masks = mask(events * 3 / 5, events * 4 / 5);
  data.test_masks = mask(events * 4 / 5, events);
  return data;
}

}  // namespace tracks

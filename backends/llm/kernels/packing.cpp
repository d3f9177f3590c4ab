// Weights into the layouts that the products read, in one pass over where they are stored. Portable:
// the loops over a row are written so that the compiler vectorises them.
//
// The layouts are described in avx512/linears.cpp and avx512/int4.cpp: outputs in blocks of 16, the
// inputs of each in pairs or fours. `first`: the output that row 0 becomes. A row that holds anything
// but finite numbers gets NaN for its scale, and so for every result, as plain torch gives.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define API extern "C"

using i64 = int64_t;

namespace {

constexpr i64 BLOCK = 16, GROUP = 32;

struct Bf16 {
  uint16_t bits;
};

inline uint32_t bits(float v) {
  uint32_t b;
  memcpy(&b, &v, 4);
  return b;
}
inline float number(uint32_t b) {
  float v;
  memcpy(&v, &b, 4);
  return v;
}
inline float widen(float v) { return v; }
inline float widen(_Float16 v) { return (float)v; }
inline float widen(Bf16 v) { return number((uint32_t)v.bits << 16); }

// To the nearest, ties to even; what is not a number stays none.
inline uint16_t narrow(float v) {
  uint32_t b = bits(v);
  uint32_t near = (b + 0x7fff + ((b >> 16) & 1)) >> 16;
  return (uint16_t)((b & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : near);
}

// The bits of the largest magnitude. As whole numbers: a NaN is above every number.
inline uint32_t largest(const float *row, i64 count) {
  uint32_t most = 0;
  for (i64 k = 0; k < count; k++) most = std::max(most, bits(row[k]) & 0x7fffffff);
  return most;
}

// f(o) for each output; a thread has whole blocks.
template <class F> void each_output(i64 first, i64 count, F &&f) {
  const i64 end = first + count;
#pragma omp parallel for
  for (i64 block = first / BLOCK; block < (end + BLOCK - 1) / BLOCK; block++)
    for (i64 o = std::max(block * BLOCK, first); o < std::min((block + 1) * BLOCK, end); o++) f(o);
}
template <class T> std::vector<float> widened(const T *row, i64 K) {
  std::vector<float> wide(K);
  for (i64 k = 0; k < K; k++) wide[k] = widen(row[k]);
  return wide;
}

// The place of an output in its block; each four bytes of it are 64 bytes apart.
template <class T> inline uint8_t *place(T *to, i64 o, i64 row_bytes) {
  return (uint8_t *)to + o / BLOCK * BLOCK * row_bytes + o % BLOCK * 4;
}
inline void spread(const uint8_t *row, i64 row_bytes, uint8_t *to) {
  for (i64 k = 0; k < row_bytes; k += 4) memcpy(to + k * BLOCK, row + k, 4);
}

template <class T> void bf16_rows(const T *from, uint16_t *to, i64 first, i64 count, i64 K) {
  each_output(first, count, [&](i64 o) {
    const std::vector<float> row = widened(from + (o - first) * K, K);
    std::vector<uint16_t> narrowed(K);
    for (i64 k = 0; k < K; k++) narrowed[k] = narrow(row[k]);
    spread((const uint8_t *)narrowed.data(), 2 * K, place(to, o, 2 * K));
  });
}

template <class T>
void int8_rows(const T *from, uint8_t *to, float *scales, i64 first, i64 count, i64 K) {
  each_output(first, count, [&](i64 o) {
    const std::vector<float> row = widened(from + (o - first) * K, K);
    std::vector<uint8_t> whole(K, 128);
    float scale = number(largest(row.data(), K)) / 127.f;
    if (scale == 0) scale = 1;
    scales[o] = scale;
    if (std::isfinite(scale))
      for (i64 k = 0; k < K; k++) whole[k] = (uint8_t)((int32_t)nearbyintf(row[k] / scale) + 128);
    else
      scales[o] = NAN;
    spread(whole.data(), K, place(to, o, K));
  });
}

// Two numbers to a byte: of eight, the first four in its low half.
inline void halves(const int8_t *whole, i64 count, uint8_t *to) {
  for (i64 g = 0; g < count / 8; g++)
    for (i64 j = 0; j < 4; j++)
      to[g * 4 + j] = (uint8_t)((whole[g * 8 + j] + 8) | (whole[g * 8 + 4 + j] + 8) << 4);
}

// The scale of least squared error among those that make the largest weight -8, or about 7 with the
// other sign.
inline float int4_scale(const float *group) {
  float extreme = 0;
  for (i64 k = 0; k < GROUP; k++)
    if (std::fabs(group[k]) > std::fabs(extreme)) extreme = group[k];
  float chosen = 1, best = INFINITY;
  for (float steps : {8.0f, 8.7f, 7.0f, 7.5f, 6.2f}) {
    float scale = extreme / -steps;
    if (scale == 0) scale = 1;
    float error[GROUP], sum = 0;
    for (i64 k = 0; k < GROUP; k++) {
      float whole = std::min(7.f, std::max(-8.f, nearbyintf(group[k] / scale)));
      float left = whole * scale - group[k];
      error[k] = left * left;
    }
    for (i64 k = 0; k < GROUP; k++) sum += error[k];
    if (sum < best) chosen = scale, best = sum;
  }
  return chosen;
}

template <class T>
void int4_rows(const T *from, uint8_t *to, float *scales, i64 first, i64 count, i64 K) {
  each_output(first, count, [&](i64 o) {
    const std::vector<float> row = widened(from + (o - first) * K, K);
    std::vector<int8_t> whole(K, 0);
    std::vector<uint8_t> both(K / 2);
    float *scale = scales + o / BLOCK * BLOCK * (K / GROUP) + o % BLOCK;
    for (i64 g = 0; g < K / GROUP; g++) {
      const float *group = row.data() + g * GROUP;
      if (largest(group, GROUP) >= 0x7f800000) {
        scale[g * BLOCK] = NAN;
        continue;
      }
      float chosen = scale[g * BLOCK] = int4_scale(group);
      for (i64 k = 0; k < GROUP; k++)
        whole[g * GROUP + k] =
            (int8_t)std::min(7.f, std::max(-8.f, nearbyintf(group[k] / chosen)));
    }
    halves(whole.data(), K, both.data());
    spread(both.data(), K / 2, place(to, o, K / 2));
  });
}

template <class F> void typed(const void *from, i64 type, F &&f) {
  if (type == 0) f((const float *)from);
  else if (type == 1) f((const Bf16 *)from);
  else f((const _Float16 *)from);
}

}  // namespace

// type: 0 float32, 1 bfloat16, 2 float16

API void pack_bf16(const void *from, i64 type, uint16_t *to, i64 first, i64 count, i64 K) {
  typed(from, type, [&](auto rows) { bf16_rows(rows, to, first, count, K); });
}
API void pack_int8(const void *from, i64 type, uint8_t *to, float *scales, i64 first, i64 count,
                   i64 K) {
  typed(from, type, [&](auto rows) { int8_rows(rows, to, scales, first, count, K); });
}
API void pack_int4(const void *from, i64 type, uint8_t *to, float *scales, i64 first, i64 count,
                   i64 K) {
  typed(from, type, [&](auto rows) { int4_rows(rows, to, scales, first, count, K); });
}

// Whole numbers that were stored with their scales: -127 to 127, or -8 to 7.
API void place_int8(const int8_t *from, uint8_t *to, i64 first, i64 count, i64 K) {
  each_output(first, count, [&](i64 o) {
    const int8_t *row = from + (o - first) * K;
    std::vector<uint8_t> whole(K);
    for (i64 k = 0; k < K; k++) whole[k] = (uint8_t)(row[k] + 128);
    spread(whole.data(), K, place(to, o, K));
  });
}
API void place_int4(const int8_t *from, const float *from_scales, uint8_t *to, float *scales,
                    i64 first, i64 count, i64 K) {
  const i64 groups = K / GROUP;
  each_output(first, count, [&](i64 o) {
    std::vector<uint8_t> both(K / 2);
    halves(from + (o - first) * K, K, both.data());
    spread(both.data(), K / 2, place(to, o, K / 2));
    float *scale = scales + o / BLOCK * BLOCK * groups + o % BLOCK;
    for (i64 g = 0; g < groups; g++) scale[g * BLOCK] = from_scales[(o - first) * groups + g];
  });
}

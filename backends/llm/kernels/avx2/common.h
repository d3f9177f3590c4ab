// What the CPU kernels for AVX2 with FMA share. The C interface, the layouts and the arithmetic are
// those of the AVX512 kernels next door; where these say "the same", it holds bit for bit.
//
// Every kernel computes a row the same way whatever other rows are beside it, so that a sequence's
// result does not depend on its company. Shapes are in rows T, outputs N, inputs K, head size D.
#pragma once

#include <immintrin.h>
#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#define API extern "C"
#define INLINE inline __attribute__((always_inline))

using bf16 = uint16_t;
using i64 = int64_t;

static INLINE __m256 load(const float *p) { return _mm256_loadu_ps(p); }
static INLINE __m256 load(const bf16 *p) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)p)), 16));
}
// Eight pairs of bfloat16 that lie side by side: the firsts and the seconds.
static INLINE __m256 firsts(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
static INLINE __m256 seconds(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32((int)0xffff0000)));
}
static INLINE void store(float *p, __m256 v) { _mm256_storeu_ps(p, v); }
// To the nearest bfloat16, ties to even; what is not a number stays none.
static INLINE void store(bf16 *p, __m256 v) {
  __m256i bits = _mm256_castps_si256(v);
  __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  __m256i near = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
  __m256i none = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
  near = _mm256_blendv_epi8(near, _mm256_set1_epi32(0x7fc00000), none);
  near = _mm256_srli_epi32(near, 16);
  __m128i packed = _mm_packus_epi32(_mm256_castsi256_si128(near), _mm256_extracti128_si256(near, 1));
  _mm_storeu_si128((__m128i *)p, packed);
}
static INLINE float wide(bf16 x) {
  uint32_t bits = (uint32_t)x << 16;
  float v;
  memcpy(&v, &bits, 4);
  return v;
}

static INLINE float sum(__m256 v) {
  __m128 half = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_add_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
}
static INLINE float most(__m256 v) {
  __m128 half = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  half = _mm_max_ps(half, _mm_movehl_ps(half, half));
  return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
}
static INLINE int32_t most(__m256i v) {
  __m128i half = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  half = _mm_max_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_max_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}
static INLINE float number(int32_t bits) {
  float v;
  memcpy(&v, &bits, 4);
  return v;
}
static INLINE int32_t sum(__m256i v) {
  __m128i half = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
  return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

// f(0), f(1), … f(N-1) with constant arguments: gcc keeps arrays indexed by them in registers.
template <class F, int... I> static INLINE void unroll_(std::integer_sequence<int, I...>, F &&f) {
  (f(std::integral_constant<int, I>{}), ...);
}
template <int N, class F> static INLINE void unroll(F &&f) {
  unroll_(std::make_integer_sequence<int, N>{}, f);
}

static INLINE __m256 exponential(__m256 x) {  // relative error about 1e-6
  x = _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(-87.f)), _mm256_set1_ps(88.f));
  __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                             _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  __m256 f = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693145752f), x);
  f = _mm256_fnmadd_ps(n, _mm256_set1_ps(1.42860677e-6f), f);
  __m256 p = _mm256_set1_ps(1.f / 720);
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.f / 120));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.f / 24));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.f / 6));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(.5f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.f));
  p = _mm256_fmadd_ps(p, f, _mm256_set1_ps(1.f));
  // n lies in [-126, 127], so 2^n is an ordinary number.
  __m256i power = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
  return _mm256_mul_ps(p, _mm256_castsi256_ps(power));
}
static INLINE __m256 sigmoid(__m256 x) {
  __m256 e = exponential(_mm256_sub_ps(_mm256_setzero_ps(), x));
  return _mm256_div_ps(_mm256_set1_ps(1.f), _mm256_add_ps(_mm256_set1_ps(1.f), e));
}
static INLINE __m256 hyperbolic_tangent(__m256 x) {  // 2 sigmoid(2x) - 1
  return _mm256_fmsub_ps(sigmoid(_mm256_add_ps(x, x)), _mm256_set1_ps(2.f), _mm256_set1_ps(1.f));
}

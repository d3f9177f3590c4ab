// What the CPU kernels share: AVX512 with bfloat16 and VNNI, a plain C interface for ctypes.
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

static INLINE __m512 load(const bf16 *p) {
  return _mm512_castsi512_ps(
      _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)p)), 16));
}
static INLINE __m512 load(const float *p) { return _mm512_loadu_ps(p); }
static INLINE void store(bf16 *p, __m512 v) {
  _mm256_storeu_si256((__m256i *)p, (__m256i)_mm512_cvtneps_pbh(v));
}
static INLINE void store(float *p, __m512 v) { _mm512_storeu_ps(p, v); }
static INLINE float number(int32_t bits) {
  float v;
  memcpy(&v, &bits, 4);
  return v;
}
static INLINE int32_t pair(const void *p) {
  int32_t v;
  memcpy(&v, p, 4);
  return v;
}

// f(0), f(1), … f(N-1) with constant arguments: gcc keeps arrays indexed by them in registers.
template <class F, int... I> static INLINE void unroll_(std::integer_sequence<int, I...>, F &&f) {
  (f(std::integral_constant<int, I>{}), ...);
}
template <int N, class F> static INLINE void unroll(F &&f) {
  unroll_(std::make_integer_sequence<int, N>{}, f);
}

static INLINE __m512 exponential(__m512 x) {  // relative error about 1e-6
  x = _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(-87.f)), _mm512_set1_ps(88.f));
  __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 0);
  __m512 f = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x);
  f = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), f);
  __m512 p = _mm512_set1_ps(1.f / 720);
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f / 120));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f / 24));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f / 6));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(.5f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f));
  p = _mm512_fmadd_ps(p, f, _mm512_set1_ps(1.f));
  return _mm512_scalef_ps(p, n);
}
static INLINE __m512 sigmoid(__m512 x) {
  __m512 e = exponential(_mm512_sub_ps(_mm512_setzero_ps(), x));
  return _mm512_div_ps(_mm512_set1_ps(1.f), _mm512_add_ps(_mm512_set1_ps(1.f), e));
}
static INLINE __m512 hyperbolic_tangent(__m512 x) {  // 2 sigmoid(2x) - 1
  return _mm512_fmsub_ps(sigmoid(_mm512_add_ps(x, x)), _mm512_set1_ps(2.f), _mm512_set1_ps(1.f));
}

// How products share their outputs out among threads.
#pragma once

#include "common.h"

// N is a multiple of 32. Each thread takes a range of outputs, a multiple of 64 of them where there
// are as many, and walks it in panels of at most `most` that stay in its cache while all rows pass by.
template <class F> static INLINE void panels(i64 N, i64 most, F &&f) {
#pragma omp parallel
  {
    i64 thread = omp_get_thread_num(), threads = omp_get_num_threads(), blocks = N / 32;
    i64 low = blocks * thread / threads / 2 * 64;
    i64 high = thread + 1 == threads ? N : blocks * (thread + 1) / threads / 2 * 64;
    for (i64 n = low; n < high; n += most) f(n, std::min(high, n + most));
  }
}

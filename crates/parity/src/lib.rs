//! P and P+Q parity: scalar oracle and SIMD kernels.

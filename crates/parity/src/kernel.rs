//! The loops over bytes, compiled once for every lane type.
//!
//! 1. [`Kernel`] is a proof that the processor has the instructions of its level: only detection
//!    creates one.
//! 2. Its methods check lengths, put slices into a `Job` and call the copy of `pass::run` that was
//!    compiled for its level.
//! 3. `pass::run` is generic over `Lanes`: a group of lanes of every column at a time, then single
//!    lanes, then bytes.

mod lanes;
mod pass;

use pass::Job;

/// A set of compiled loops that this processor can run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kernel(Level);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Ssse3,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    #[cfg(target_arch = "x86_64")]
    Avx512Gfni,
}

impl Kernel {
    /// Fastest kernel of this processor. Detection runs once per process; later calls cost a few
    /// loads.
    #[inline]
    pub fn best() -> Self {
        #[cfg(target_arch = "x86_64")]
        {
            if has_avx512_gfni() {
                return Self(Level::Avx512Gfni);
            }
            if std::arch::is_x86_feature_detected!("avx2") {
                return Self(Level::Avx2);
            }
            if std::arch::is_x86_feature_detected!("ssse3") {
                return Self(Level::Ssse3);
            }
        }
        Self(Level::Portable)
    }

    /// All kernels that this processor can run, slowest first; for tests and benchmarks.
    pub fn available() -> Vec<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut))]
        let mut kernels = vec![Self(Level::Portable)];
        #[cfg(target_arch = "x86_64")]
        {
            if std::arch::is_x86_feature_detected!("ssse3") {
                kernels.push(Self(Level::Ssse3));
            }
            if std::arch::is_x86_feature_detected!("avx2") {
                kernels.push(Self(Level::Avx2));
            }
            if has_avx512_gfni() {
                kernels.push(Self(Level::Avx512Gfni));
            }
        }
        kernels
    }

    /// Name for reports.
    pub fn name(self) -> &'static str {
        match self.0 {
            Level::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Level::Ssse3 => "ssse3",
            #[cfg(target_arch = "x86_64")]
            Level::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Level::Avx512Gfni => "avx512+gfni",
        }
    }

    /// [`crate::xor_into`] with this kernel.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn xor_into(self, dst: &mut [u8], src: &[u8]) {
        assert_eq!(dst.len(), src.len(), "columns differ in length");
        self.run(Job::AddInto { dst, src });
    }

    /// [`crate::encode_p`] with this kernel.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn encode_p(self, data: &[&[u8]], p: &mut [u8]) {
        check_lengths(data, p.len());
        self.run(Job::Sum {
            columns: data,
            out: p,
        });
    }

    /// [`crate::encode_pq`] with this kernel.
    ///
    /// # Panics
    /// If the lengths differ or there are more than 255 columns.
    pub fn encode_pq(self, data: &[&[u8]], p: &mut [u8], q: &mut [u8]) {
        assert!(
            data.len() <= 255,
            "{} data columns, the field has 255 weights",
            data.len()
        );
        assert_eq!(p.len(), q.len(), "columns differ in length");
        check_lengths(data, p.len());
        self.run(Job::SumAndPowers {
            columns: data,
            p,
            q,
        });
    }

    /// `out = sum of weight * column`.
    ///
    /// # Panics
    /// If the lengths differ or there is not one weight for each column.
    pub fn weighted_sum(self, columns: &[&[u8]], weights: &[u8], out: &mut [u8]) {
        assert_eq!(columns.len(), weights.len(), "one weight for each column");
        check_lengths(columns, out.len());
        self.run(Job::Weighted {
            columns,
            weights,
            out,
        });
    }

    /// Two weighted sums of the same columns in one pass.
    ///
    /// # Panics
    /// If the lengths differ or there is not one weight for each column in both sums.
    pub fn weighted_sums(self, columns: &[&[u8]], weights: [&[u8]; 2], outs: [&mut [u8]; 2]) {
        assert!(
            weights.iter().all(|w| w.len() == columns.len()),
            "one weight for each column"
        );
        assert_eq!(outs[0].len(), outs[1].len(), "columns differ in length");
        check_lengths(columns, outs[0].len());
        self.run(Job::WeightedPair {
            columns,
            weights,
            outs,
        });
    }

    fn run(self, job: Job<'_>) {
        match self.0 {
            // SAFETY: the job's slices were checked for equal lengths by the caller; plain words
            // need no processor feature.
            Level::Portable => unsafe { pass::run::<u64, 4>(job) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: lengths as above; this level exists only after detection of SSSE3.
            Level::Ssse3 => unsafe { run_ssse3(job) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: lengths as above; this level exists only after detection of AVX2.
            Level::Avx2 => unsafe { run_avx2(job) },
            #[cfg(target_arch = "x86_64")]
            // SAFETY: lengths as above; this level exists only after detection of AVX-512 F and BW
            // and GFNI.
            Level::Avx512Gfni => unsafe { run_avx512_gfni(job) },
        }
    }
}

fn check_lengths(columns: &[&[u8]], length: usize) {
    assert!(
        columns.iter().all(|column| column.len() == length),
        "columns differ in length"
    );
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn has_avx512_gfni() -> bool {
    use std::arch::is_x86_feature_detected as has;
    has!("avx512f") && has!("avx512bw") && has!("gfni")
}

/// # Safety
/// The processor has SSSE3; all slices of the job have one length.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "ssse3")]
unsafe fn run_ssse3(job: Job<'_>) {
    // SAFETY: passed on.
    unsafe { pass::run::<lanes::x86::Ssse3, 4>(job) }
}

/// # Safety
/// The processor has AVX2; all slices of the job have one length.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn run_avx2(job: Job<'_>) {
    // SAFETY: passed on.
    unsafe { pass::run::<lanes::x86::Avx2, 4>(job) }
}

/// # Safety
/// The processor has AVX-512 F and BW and GFNI; all slices of the job have one length.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn run_avx512_gfni(job: Job<'_>) {
    // SAFETY: passed on.
    unsafe { pass::run::<lanes::x86::Avx512Gfni, 8>(job) }
}

#[cfg(test)]
mod tests;

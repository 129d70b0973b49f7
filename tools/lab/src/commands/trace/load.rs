//! Traces as operations of a simulated volume, for `replay`, `advise` and `sim run --trace`.
//!
//! 1. The first pass counts blocks, blocks written, and memory ([`survey`]).
//! 2. A trace that would exceed the memory limit is refused ([`Surveyed::allow`]).
//! 3. The second pass keeps the operations ([`Surveyed::load`]).

use super::{Noticed, TraceSource};
use crate::commands::replay::cannot;
use clap::{Args, ValueEnum};
use std::io::Read;
use windrow_console::values::Size;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_trace::summary::Figures;
use windrow_trace::{Reader, Request, Summary};
use windrow_wa_sim::wa::recorded::{Recorded, Survey, Wish};

/// Volume of a trace.
#[derive(Args, Clone)]
pub struct VolumeArguments {
    /// Size of the volume: its addresses are those of the trace, and unwritten addresses belong to
    /// it. Default: the volume consists of the blocks that the trace writes, contiguously.
    #[arg(long, value_name = "BYTES")]
    pub size: Option<Size>,
    /// Uncounted initial writes, in address order: nothing, or every block of the volume.
    #[arg(long, value_enum, default_value = "none")]
    pub prefill: Prefill,
    /// The same as --prefill linear.
    #[arg(long, conflicts_with = "prefill")]
    pub fill: bool,
    /// Memory limit of operations and tables; a trace that needs more is refused.
    #[arg(long, value_name = "BYTES", default_value = "8G")]
    pub memory: Size,
}

/// See [`VolumeArguments::prefill`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Prefill {
    /// Nothing.
    None,
    /// Every block.
    Linear,
}

impl VolumeArguments {
    /// True if every block is written first.
    pub fn fills(&self) -> bool {
        self.fill || self.prefill == Prefill::Linear
    }

    /// Options for the trace.
    pub fn wish(&self, trims: bool, flushes: bool) -> Wish {
        Wish {
            size_bytes: self.size.map(|size| size.0),
            trims,
            flushes,
            blocks_per_s: None,
        }
    }
}

/// Limit of standard input that is kept to be read twice.
const INPUT_MOST: u64 = 1 << 30;

/// A trace after its first pass.
pub struct Surveyed<'a> {
    source: &'a TraceSource,
    /// Standard input, which cannot be read twice.
    held: Option<Vec<u8>>,
    survey: Survey,
    figures: Figures,
    /// Number of blocks of the volume.
    pub blocks: u32,
}

/// A trace, ready to run.
pub struct Loaded {
    /// Its operations.
    pub recorded: Recorded,
    /// Sizes and kinds of its requests.
    pub figures: Figures,
    /// Format, devices, and unreadable parts.
    pub noticed: Noticed,
    /// From the first request to the last one, in nanoseconds; 0 if all arrive at one time, or the
    /// trace has no times.
    pub duration_ns: u64,
}

/// Runs one pass over the trace.
fn each(
    source: &TraceSource,
    held: Option<&[u8]>,
    mut visit: impl FnMut(&Request),
) -> Result<Noticed, Failure> {
    let mut reader: Reader<'_> = match held {
        Some(bytes) => source.reader(bytes)?,
        None => source.open()?,
    };
    while let Some(request) = reader
        .next_request()
        .map_err(|error| source.failure(&error))?
    {
        visit(&request);
    }
    Ok(Noticed::of(&reader))
}

/// Reads standard input completely.
fn hold() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin()
        .take(INPUT_MOST + 1)
        .read_to_end(&mut bytes);
    read.map_err(|error| Failure::new(id::LOCAL_FILE, "cannot read standard input", error))?;
    if bytes.len() as u64 > INPUT_MOST {
        return Err(cannot(
            "standard input exceeds 1 GiB, which is kept to be read twice; name a file",
        ));
    }
    Ok(bytes)
}

/// Runs the first pass.
pub fn survey(source: &TraceSource, wish: Wish) -> Result<Surveyed<'_>, Failure> {
    let held = if source.is_standard_input() {
        Some(hold()?)
    } else {
        None
    };
    let (mut survey, mut summary) = (Survey::new(wish), Summary::default());
    each(source, held.as_deref(), |request| {
        survey.add(request);
        summary.add(request);
    })?;
    let blocks = survey.blocks().map_err(|why| cannot(&why))?;
    Ok(Surveyed {
        source,
        held,
        survey,
        figures: summary.figures(),
        blocks,
    })
}

impl Surveyed<'_> {
    /// Number of blocks written, repeated writes included.
    pub fn written(&self) -> u64 {
        self.survey.written()
    }

    /// Refuses a trace that needs more memory, including tables of `tables` bytes.
    pub fn allow(&self, memory: Size, tables: u64) -> Result<(), Failure> {
        let operations = self.survey.operations_bytes();
        let all = operations.saturating_add(tables);
        if all <= memory.0 {
            return Ok(());
        }
        Err(cannot(&format!(
            "it takes {} of memory ({} for its operations, {} for tables), more than --memory allows ({memory})",
            Size(all),
            Size(operations),
            Size(tables)
        )))
    }

    /// Runs the second pass.
    pub fn load(self) -> Result<Loaded, Failure> {
        let mut volume = self.survey.volume().map_err(|why| cannot(&why))?;
        let (mut first, mut duration_ns) = (None, 0);
        let noticed = each(self.source, self.held.as_deref(), |request| {
            duration_ns = request
                .time_ns
                .saturating_sub(*first.get_or_insert(request.time_ns))
                .max(duration_ns);
            volume.add(request);
        })?;
        Ok(Loaded {
            recorded: volume.finish(),
            figures: self.figures,
            noticed,
            duration_ns,
        })
    }
}

//! Traces as operations of a simulated volume: what `replay`, `advise` and `sim run --trace` run.
//!
//! 1 The trace is gone through once: blocks, blocks written, memory ([`survey`]). 2 What would take
//!   more memory than is allowed is refused
//! ([`Surveyed::allow`]). 3 It is gone through again, and the operations are kept
//! ([`Surveyed::load`]).

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

/// What the volume of a trace is.
#[derive(Args, Clone)]
pub struct VolumeArguments {
    /// Size of the volume: its addresses are those of the trace, and what the trace never writes
    /// belongs to it. Else the volume is the blocks that the trace writes, side by side.
    #[arg(long, value_name = "BYTES")]
    pub size: Option<Size>,
    /// What is written once before, in the order of addresses, and not counted: nothing, or every
    /// block of the volume.
    #[arg(long, value_enum, default_value = "none")]
    pub prefill: Prefill,
    /// The same as --prefill linear.
    #[arg(long, conflicts_with = "prefill")]
    pub fill: bool,
    /// Most memory that operations and tables may take; what needs more is refused.
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
    /// Every block is written before.
    pub fn fills(&self) -> bool {
        self.fill || self.prefill == Prefill::Linear
    }

    /// What is wished of the trace.
    pub fn wish(&self, trims: bool, flushes: bool) -> Wish {
        Wish {
            size_bytes: self.size.map(|size| size.0),
            trims,
            flushes,
            blocks_per_s: None,
        }
    }
}

/// Bytes of standard input that are kept to be read twice.
const INPUT_MOST: u64 = 1 << 30;

/// A trace that was gone through once.
pub struct Surveyed<'a> {
    source: &'a TraceSource,
    /// Standard input, which can not be read twice.
    held: Option<Vec<u8>>,
    survey: Survey,
    figures: Figures,
    /// Blocks of the volume.
    pub blocks: u32,
}

/// A trace, ready to be run.
pub struct Loaded {
    /// Its operations.
    pub recorded: Recorded,
    /// Sizes and kinds of its requests.
    pub figures: Figures,
    /// Format, devices, and what could not be read.
    pub noticed: Noticed,
    /// From the first request to the last one, in nanoseconds; 0 where all come at one time, or the
    /// trace has no times.
    pub duration_ns: u64,
}

/// Goes over the trace once.
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

/// Standard input, whole.
fn hold() -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let read = std::io::stdin()
        .take(INPUT_MOST + 1)
        .read_to_end(&mut bytes);
    read.map_err(|error| Failure::new(id::LOCAL_FILE, "cannot read standard input", error))?;
    if bytes.len() as u64 > INPUT_MOST {
        return Err(cannot(
            "more than 1 GiB came on standard input, which is kept to be read twice; name a file",
        ));
    }
    Ok(bytes)
}

/// The first time.
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
    /// Blocks written, each as often as it is written.
    pub fn written(&self) -> u64 {
        self.survey.written()
    }

    /// Refuses what would take more than so much memory with tables of so many bytes.
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

    /// The second time.
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

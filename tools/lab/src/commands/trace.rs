//! `trace`: analysis and conversion of block traces in foreign and Windrow's formats.

mod generate;
mod info;
pub mod load;
mod plot;
pub mod record;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use std::fs::File;
use std::io::{BufWriter, Read};
use std::path::{Path, PathBuf};
use windrow_console::files;
use windrow_console::output::Output;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_trace::compact::Granule;
use windrow_trace::text::{Columns, Event};
use windrow_trace::writer::Written;
use windrow_trace::{Format, Options, Reader, Target, TraceError, Writer};

/// Operations on traces.
#[derive(Subcommand)]
pub enum TraceCommand {
    /// Show the properties of a trace: requests, bytes, working set, sizes, shares, sequentiality,
    /// rate.
    Info(info::InfoArguments),
    /// Convert a trace: to the compact format, CSV or fio's log.
    Convert(ConvertArguments),
    /// Draw a trace's writes by address and time, and its request lengths (SVG, PNG), or report
    /// both (HTML).
    Plot(plot::PlotArguments),
    /// Write a synthetic workload as a trace.
    Generate(generate::GenerateArguments),
    /// Record the requests of a served volume, or of a block device of this machine.
    Record(record::RecordArguments),
}

/// Input of a trace.
#[derive(Args)]
pub struct TraceSource {
    /// Trace; `-` for standard input. gzip and zstd are decompressed.
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    #[command(flatten)]
    pub form: TraceForm,
}

/// Format of a trace.
#[derive(Args, Clone, Default)]
pub struct TraceForm {
    /// Format, if it is not detected: compact, blktrace, blkparse, fio, msr, alibaba, tencent, spc,
    /// vscsi, disksim, mqsim, fiu, jesd219, csv.
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,
    /// Columns of a text of another format, such as `op,lba,sectors,time_us`: op, offset, lba,
    /// block, length, sectors, blocks, time_s, time_ms, time_us, time_ns, device, skip.
    #[arg(long, value_name = "LIST", value_parser = Columns::parse, conflicts_with = "format")]
    columns: Option<Columns>,
    /// Event of a request that counts in a trace of the kernel's block layer; default the earliest
    /// that the whole trace has.
    #[arg(long, value_enum)]
    event: Option<Events>,
    /// Skip and count records that cannot be parsed; if the rest is truncated or damaged, end with
    /// the part before it.
    #[arg(long)]
    skip_bad: bool,
    /// Only the requests of one device: its name, or, unless names are numbers, its number in the
    /// order of the trace, from 0.
    #[arg(long, value_name = "NAME|N")]
    device: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
enum Events {
    /// Queued.
    Queued,
    /// Issued to the driver.
    Issued,
    /// Completed.
    Completed,
}

impl TraceForm {
    /// The selected device.
    pub fn device(&self) -> Option<&str> {
        self.device.as_deref()
    }
}

impl TraceSource {
    /// Opens the trace.
    pub fn open(&self) -> Result<Reader<'static>, Failure> {
        let source: Box<dyn Read> = if self.is_standard_input() {
            Box::new(std::io::stdin())
        } else {
            let opened = File::open(&self.trace);
            Box::new(opened.map_err(|error| {
                Failure::new(
                    id::LOCAL_FILE,
                    format!("cannot read {}", self.name()),
                    error,
                )
                .remedy("check the path and your rights to it")
            })?)
        };
        self.reader(source)
    }

    /// Opens a trace from another source.
    pub fn reader<'a>(&self, source: impl Read + 'a) -> Result<Reader<'a>, Failure> {
        let event = self.form.event.map(|event| match event {
            Events::Queued => Event::Queued,
            Events::Issued => Event::Issued,
            Events::Completed => Event::Completed,
        });
        let options = Options {
            format: self.form.format,
            event,
            columns: self.form.columns.clone(),
            skip_bad: self.form.skip_bad,
            device: self.form.device.clone(),
        };
        Reader::new(source, &options).map_err(|error| self.failure(&error))
    }

    /// True for `-`.
    pub fn is_standard_input(&self) -> bool {
        self.trace.as_os_str() == "-"
    }

    /// Name for messages.
    pub fn name(&self) -> String {
        self.trace.display().to_string()
    }

    /// Name quoted for a shell.
    fn quoted(&self) -> String {
        let name = self.name();
        let is_plain = !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_./+,:@-".contains(&byte));
        if is_plain {
            name
        } else {
            format!("'{}'", name.replace('\'', "'\\''"))
        }
    }

    /// Name without its folder, for titles.
    pub fn short_name(&self) -> String {
        self.trace
            .file_name()
            .map_or_else(|| self.name(), |name| name.to_string_lossy().into_owned())
    }

    /// Converts an error of the reader.
    pub fn failure(&self, error: &TraceError) -> Failure {
        let what = format!("cannot read the trace {}", self.name());
        match error {
            TraceError::Unknown(_) => Failure::new(id::TRACE_FORMAT, what, error)
                .remedy("name its format with --format, or its columns with --columns"),
            TraceError::Record { .. } => Failure::new(id::TRACE_RECORD, what, error)
                .remedy("is it of that format (--format)? --skip-bad leaves such records out"),
            TraceError::Damaged { .. } => Failure::new(id::TRACE_DAMAGED, what, error)
                .remedy("download it again, or read the part before the damage: --skip-bad"),
            TraceError::Wrapped { remedy, .. } => {
                let remedy = remedy.replace("FILE", &self.quoted());
                Failure::new(id::TRACE_FORMAT, what, error)
                    .remedy(format!("{remedy}; `-` reads standard input"))
            }
            TraceError::Event(_) => Failure::new(id::TRACE_FORMAT, what, error)
                .remedy("name the event that counts: --event queued"),
            TraceError::Device(_) => Failure::new(id::TRACE_FORMAT, what, error)
                .remedy("`windrow-lab trace info TRACE -o json` lists its devices"),
            TraceError::Io(_) => Failure::new(id::LOCAL_FILE, what, error),
        }
    }
}

/// Findings of a reader other than requests.
#[derive(Clone, Default, Serialize)]
pub struct Noticed {
    format: &'static str,
    devices: Vec<String>,
    skipped_records: u64,
    end_is_missing: bool,
    /// Position from which the rest could not be read, and the reason.
    damage: Option<String>,
    /// Event that counts, in a trace of the kernel's block layer.
    counted_event: Option<&'static str>,
}

impl Noticed {
    fn of(reader: &Reader<'_>) -> Self {
        Self {
            format: reader.format().name(),
            devices: reader.devices().to_vec(),
            skipped_records: reader.skipped(),
            end_is_missing: reader.is_cut(),
            damage: reader.damage().map(str::to_owned),
            counted_event: reader.counted_event().map(Event::name),
        }
    }

    /// Number of named devices.
    pub fn devices(&self) -> usize {
        self.devices.len()
    }

    /// Remark lines.
    pub fn remarks(&self) -> String {
        let mut text = String::new();
        if self.skipped_records > 0 {
            text.push_str(&format!(
                "{} records were left out because they could not be understood\n",
                self.skipped_records
            ));
        }
        if let Some(event) = self
            .counted_event
            .filter(|event| *event != Event::Queued.name())
        {
            text.push_str(&format!("a request counts when it is {event}: the trace has none that is queued, or --event says so\n"));
        }
        match &self.damage {
            Some(why) => text.push_str(&format!("the rest of the trace was not read: {why}\n")),
            None if self.end_is_missing => text.push_str("the end of the trace is missing\n"),
            None => {}
        }
        text
    }
}

/// Arguments of `trace convert`.
#[derive(Args)]
#[command(
    after_help = "Examples:\n  windrow-lab trace convert blkparse.txt.zst trace.wtrc\n  windrow-lab trace convert trace.wtrc --to fio trace.iolog\n  \
    windrow-lab trace convert disk.blktrace.gz blocks.wtrc.gz --granule block\n  windrow-lab trace convert own.txt --columns time_s,op,lba,sectors own.csv"
)]
pub struct ConvertArguments {
    #[command(flatten)]
    source: TraceSource,
    /// File to write; compressed if it ends in .gz.
    #[arg(value_name = "OUT")]
    out: PathBuf,
    /// Format to write; default by the name: .csv, .iolog or .fio, and the compact format for all
    /// others.
    #[arg(long, value_enum)]
    to: Option<To>,
    /// Unit of addresses in the compact format: reads and writes are extended to whole units, trims
    /// cut to them.
    #[arg(long, value_enum, default_value = "byte")]
    granule: Granules,
}

/// Output formats.
#[derive(Clone, Copy, ValueEnum)]
pub enum To {
    /// Compact.
    Compact,
    /// Operation, offset, length, microseconds, device.
    Csv,
    /// fio's log, version 3.
    Fio,
}

#[derive(Clone, Copy, ValueEnum)]
enum Granules {
    /// Byte for byte.
    Byte,
    /// 512 bytes.
    Sector,
    /// 4 KiB.
    Block,
}

#[derive(Serialize)]
struct Converted {
    #[serde(flatten)]
    noticed: Noticed,
    requests: u64,
    dropped_trims: u64,
    bytes: u64,
}

/// Runs the command.
pub fn run(command: &TraceCommand, output: &Output) -> Result<u8, Failure> {
    match command {
        TraceCommand::Info(arguments) => info::run(arguments, output),
        TraceCommand::Convert(arguments) => convert(arguments, output),
        TraceCommand::Plot(arguments) => plot::run(arguments, output),
        TraceCommand::Generate(arguments) => generate::run(arguments, output),
        TraceCommand::Record(arguments) => record::run(arguments, output),
    }
}

/// Output format of a file of this name, and whether it is compressed.
fn target_of(out: &Path, to: Option<To>, granule: Granules) -> (Target, bool) {
    let name = out
        .file_name()
        .map(|name| name.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    let (plain, gzip) = name
        .strip_suffix(".gz")
        .map_or((name.as_str(), false), |plain| (plain, true));
    let to = to.unwrap_or(match plain.rsplit_once('.').map(|(_, ending)| ending) {
        Some("csv") => To::Csv,
        Some("iolog" | "fio") => To::Fio,
        _ => To::Compact,
    });
    let target = match (to, granule) {
        (To::Csv, _) => Target::Csv,
        (To::Fio, _) => Target::Fio,
        (To::Compact, Granules::Byte) => Target::Compact(Granule::Byte),
        (To::Compact, Granules::Sector) => Target::Compact(Granule::Sector),
        (To::Compact, Granules::Block) => Target::Compact(Granule::Block),
    };
    (target, gzip)
}

type FileWriter = Writer<BufWriter<tempfile::NamedTempFile>>;

/// Reason that a conversion failed.
enum Ended {
    /// The output file cannot be written.
    Written(std::io::Error),
    /// The input failed.
    Source(Failure),
}

impl From<std::io::Error> for Ended {
    fn from(error: std::io::Error) -> Self {
        Self::Written(error)
    }
}

/// Writes a trace into a temporary file and renames it, so that no incomplete file takes the name;
/// also returns its size.
fn write_trace(
    out: &Path,
    target: Target,
    gzip: bool,
    fill: impl FnOnce(&mut FileWriter) -> Result<(), Ended>,
) -> Result<(Written, u64), Failure> {
    let cannot = |error: std::io::Error| files::cannot(out, error);
    let part = files::draft(out)?;
    let mut writer = Writer::new(BufWriter::new(part), target, gzip).map_err(cannot)?;
    fill(&mut writer).map_err(|ended| match ended {
        Ended::Written(error) => cannot(error),
        Ended::Source(failure) => failure,
    })?;
    let (to, written) = writer.finish().map_err(cannot)?;
    let part = to
        .into_inner()
        .map_err(|error| cannot(error.into_error()))?;
    let bytes = part.as_file().metadata().map_err(cannot)?.len();
    files::put(part, out)?;
    Ok((written, bytes))
}

fn convert(arguments: &ConvertArguments, output: &Output) -> Result<u8, Failure> {
    let mut reader = arguments.source.open()?;
    let (target, gzip) = target_of(&arguments.out, arguments.to, arguments.granule);
    let (written, bytes) = write_trace(&arguments.out, target, gzip, |writer| {
        while let Some(request) = reader
            .next_request()
            .map_err(|error| Ended::Source(arguments.source.failure(&error)))?
        {
            writer.add(&request, reader.devices())?;
        }
        Ok(())
    })?;
    let converted = Converted {
        noticed: Noticed::of(&reader),
        requests: written.requests,
        dropped_trims: written.dropped,
        bytes,
    };
    output.result("trace-convert", &converted, || {
        let dropped = if converted.dropped_trims > 0 {
            format!(
                "{} trims of less than a granule were dropped\n",
                converted.dropped_trims
            )
        } else {
            String::new()
        };
        format!(
            "{}: {} requests of a {} trace, {}\n{dropped}{}",
            arguments.out.display(),
            converted.requests,
            converted.noticed.format,
            windrow_console::values::Size(bytes),
            converted.noticed.remarks()
        )
    });
    Ok(0)
}

//! `pool create`.

use super::members::Disks;
use clap::Args;
use serde_json::json;
use std::path::PathBuf;
use windrow_console::context;
use windrow_console::output::Output;
use windrow_console::progress::Progress;
use windrow_console::table::Table;
use windrow_console::values::{JournalPlace, Share, Size, check_pool_name};
use windrow_device::Allocation;
use windrow_engine::{Limits, PoolPlan};
use windrow_format::superblock::{Properties, Reduction};
use windrow_geometry::Redundancy;
use windrow_host::Failure;
use windrow_host::failure::id;
use windrow_host::offline::{self, CreatePlan, CreateRequest, MemberTarget};
use windrow_host::registry::PoolEntry;
use windrow_host::text::{quoted, shown_path};
use windrow_types::{BLOCK_BYTES, VolumeId};

/// Arguments of `pool create`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  windrow pool create --redundancy 6 tank /dev/sdb /dev/sdc /dev/sdd /dev/sde /dev/sdf
  windrow pool create --redundancy 5 --dry-run tank /dev/sdb /dev/sdc /dev/sdd
  windrow pool create --redundancy 6 --size 10G tank a.img b.img c.img d.img
  windrow pool create --redundancy 1 --copies 2 --spare 20% tank /dev/sdb /dev/sdc
  windrow pool create --reduction capacity tank /dev/sdb /dev/sdc /dev/sdd /dev/sde
  windrow pool create --journal /dev/nvme0n1,/dev/nvme1n1 tank /dev/sdb /dev/sdc /dev/sdd /dev/sde")]
pub struct CreateArguments {
    /// Name of the pool.
    name: String,
    /// Members: block devices or files.
    #[arg(required = true, num_args = 1.., value_name = "PATH")]
    members: Vec<PathBuf>,
    /// 0 striping, 1 copies, 5 one parity, 6 two parities.
    #[arg(long, short, value_parser = ["0", "1", "5", "6"], default_value = "6")]
    redundancy: String,
    /// Number of copies with --redundancy 1 [default: 2].
    #[arg(long, value_parser = windrow_console::values::within::<u8>(2, 4))]
    copies: Option<u8>,
    /// Most bytes that one batch writes to one member; else by member size.
    #[arg(long, value_name = "SIZE")]
    chunk: Option<Size>,
    /// Bytes of a segment on one member: its erase block or a multiple; else by member size.
    #[arg(long, value_name = "SIZE")]
    segment: Option<Size>,
    /// Align segments to this power of two; else 1M, or less for a smaller segment.
    #[arg(long, value_name = "SIZE")]
    align: Option<Size>,
    /// Share of the space that data may not fill; a larger one makes random writes cheaper.
    #[arg(long, default_value = "10%")]
    spare: Share,
    /// Most milliseconds that acknowledged data waits in memory before it is written out.
    #[arg(long, value_name = "MS", default_value = "50", value_parser = windrow_console::values::within::<u32>(1, 3_600_000))]
    seal_age: u32,
    /// Use of the space saved by compression and deduplication: spare space, so that cleaning moves
    /// less, or capacity for more data.
    #[arg(long, value_parser = ["spare", "capacity"], default_value = "spare")]
    reduction: String,
    /// The journal that makes small flushes cheap. A size: bytes of each member; 0: none; else
    /// 1/256 of the smallest member, 256K to 16M. Devices: as with --journal-device; they are used
    /// before the journal on the members.
    #[arg(long, value_name = "SIZE | DEV[,DEV]", value_delimiter = ',')]
    journal: Vec<JournalPlace>,
    /// A device or file that holds only a journal, whatever its name (with a comma, for example);
    /// several hold copies. Data members then get full rows, if one fills in time and the journal
    /// has room.
    #[arg(long, value_name = "PATH")]
    journal_device: Vec<PathBuf>,
    /// The journal devices are power-safe: a completed write is durable without a flush (MRAM,
    /// NVDIMM, a cache that survives loss of power). A file is written synchronously.
    #[arg(long)]
    journal_power_safe: bool,
    /// Create members that do not exist as files of this size.
    #[arg(long, value_name = "SIZE")]
    size: Option<Size>,
    /// Do not reserve the space of new files: the pool stops if the file system fills up.
    #[arg(long)]
    sparse: bool,
    #[command(flatten)]
    disks: Disks,
    /// Overwrite members that hold data or a signature. A member in use is refused all the same.
    #[arg(long)]
    force: bool,
    /// Replace another known pool of this name: its members' paths are forgotten; its exports are
    /// kept for its return.
    #[arg(long)]
    replace_known: bool,
    /// Show capacity, memory, layout and content to be overwritten; write nothing.
    #[arg(long)]
    dry_run: bool,
}

impl CreateArguments {
    fn request(&self) -> Result<CreateRequest, Failure> {
        check_pool_name(&self.name)?;
        let rows = |size: Option<Size>, what: &str| match size {
            None => Ok(None),
            Some(Size(bytes))
                if bytes.is_multiple_of(BLOCK_BYTES)
                    && bytes > 0
                    && bytes / BLOCK_BYTES <= u64::from(u32::MAX) =>
            {
                Ok(Some((bytes / BLOCK_BYTES) as u32))
            }
            Some(size) => {
                let failure = Failure::new(
                    id::USAGE,
                    format!("{size} cannot be the {what} size"),
                    "it must be a multiple of 4K, and less than 16T",
                );
                Err(failure.remedy("give another size, such as 256K, or leave it out"))
            }
        };
        if self.redundancy != "1" && self.copies.is_some() {
            let why = format!("redundancy {} keeps none", self.redundancy);
            return Err(Failure::new(id::USAGE, "--copies does not fit", why)
                .remedy("leave it out, or give --redundancy 1"));
        }
        let redundancy = match self.redundancy.as_str() {
            "0" => Redundancy::None,
            "1" => Redundancy::Copies(self.copies.unwrap_or(2)),
            "5" => Redundancy::Single,
            _ => Redundancy::Double,
        };
        let segment_rows = rows(self.segment, "segment")?;
        let (journal_bytes, journal_devices) = self.journals()?;
        Ok(CreateRequest {
            name: self.name.clone(),
            redundancy,
            members: self.members.clone(),
            file_bytes: self.size.map(|size| size.0),
            allocation: if self.sparse {
                Allocation::Sparse
            } else {
                Allocation::Preallocate
            },
            chunk_rows: rows(self.chunk, "chunk")?,
            segment_rows,
            align_bytes: self
                .align
                .map_or_else(|| offline::alignment(segment_rows), |align| align.0),
            properties: Properties {
                spare_per_mille: self.spare.0,
                seal_age_ms: self.seal_age,
                reduction: Reduction::from_name(&self.reduction).unwrap_or_default(),
                ..Properties::DEFAULT
            },
            journal_bytes,
            journal_devices,
            journal_power_safe: self.journal_power_safe,
            force: self.force,
            partitioning: self.disks.partitioning(),
        })
    }
}

impl CreateArguments {
    /// Bytes of the journal on each member, if a size was given, and the devices.
    fn journals(&self) -> Result<(Option<u64>, Vec<PathBuf>), Failure> {
        let (mut sizes, mut devices) = (Vec::new(), self.journal_device.clone());
        for place in &self.journal {
            match place {
                JournalPlace::OnMembers(size) => sizes.push(size.0),
                JournalPlace::Device(path) => devices.push(path.clone()),
            }
        }
        if sizes.len() > 1 {
            let why = "each member has one journal";
            return Err(
                Failure::new(id::USAGE, "--journal was given several sizes", why)
                    .remedy("give one size, and devices in addition"),
            );
        }
        if self.journal_power_safe && devices.is_empty() {
            let why = "there are no journal devices";
            return Err(
                Failure::new(id::USAGE, "--journal-power-safe does not fit", why)
                    .remedy("name the device with --journal DEV, or leave it out"),
            );
        }
        Ok((sizes.first().copied(), devices))
    }
}

/// Runs it.
pub fn run(arguments: &CreateArguments, output: &Output) -> Result<u8, Failure> {
    let request = arguments.request()?;
    let plan = offline::plan(&request)?;
    let registry = context::registry();
    // Data on the members is checked first: it is the greater loss.
    let warnings = offline::must_be_usable(&request, &plan)?;
    if let Some(known) = registry
        .load(&request.name)?
        .filter(|_| !arguments.replace_known)
    {
        let why = format!("a pool of this name is known already ({})", known.pool);
        return Err(Failure::new(id::POOL_CREATE, format!("cannot create pool '{}'", request.name), why)
            .remedy("choose another name, destroy or export that pool, or give --replace-known to forget where its members are"));
    }
    let unused = plan.unused(&request);
    let is_made = |member: &&MemberTarget| member.is_new && !arguments.dry_run;
    let created: Vec<_> = plan
        .members
        .iter()
        .filter(is_made)
        .map(|member| {
            offline::absolute(&member.path)
                .to_string_lossy()
                .into_owned()
        })
        .collect();
    context::must_not_replace_served(&registry, &request.name, plan.pool())?;
    let value = json!({
        "name": request.name,
        "pool": plan.pool(),
        "redundancy": request.redundancy.name(),
        "dry_run": arguments.dry_run,
        "plan": plan.plan,
        "dedup_memory_bytes": dedup_memory(&plan.plan),
        "capacity": plan.capacity(),
        "unused": unused,
        "warnings": warnings,
        "created_files": created,
        "members": plan.members.iter().map(|member| json!({
            "path": member.path.to_string_lossy(), "size_bytes": member.size_bytes, "new": member.is_new, "in_use": member.in_use,
            "bears_data": member.bears_data, "partition": member.partition.is_some(), "remarks": member.remarks,
        })).collect::<Vec<_>>(),
    });
    if !arguments.dry_run {
        let mut progress = Progress::new("creating members");
        let all: u64 = plan.members.iter().map(|member| member.size_bytes).sum();
        let before = |number: usize| {
            plan.members[..number]
                .iter()
                .map(|member| member.size_bytes)
                .sum::<u64>()
        };
        let members = offline::create(&request, &plan, &mut |number, bytes| {
            progress.bytes(before(number) + bytes, all)
        })?;
        let paths = members.iter().map(|path| offline::absolute(path)).collect();
        let mut entry = PoolEntry::new(&request.name, plan.pool(), paths);
        // None yet: volumes that another host makes before this host makes one were made there.
        entry.last_volume = Some(VolumeId(0));
        registry.save(&entry).map_err(|failure| {
            let what = format!(
                "pool '{}' is created, but the paths of its members could not be stored",
                request.name
            );
            let remedy = format!(
                "{}, and import it with `windrow pool import {} --members ...`",
                failure.remedy,
                quoted(&request.name)
            );
            Failure::new(
                id::LOCAL_FILE,
                what,
                format!("{}: {}", failure.what, failure.why),
            )
            .remedy(remedy)
        })?;
    }
    let notes = || {
        let of_unused = unused.iter().map(|unused| {
            format!(
                "{} of {} are not used: {}",
                Size(unused.unused_bytes),
                shown_path(&unused.path),
                unused.remedy
            )
        });
        warnings
            .iter()
            .cloned()
            .chain(of_unused)
            .map(|note| format!("note       {note}\n"))
            .collect::<String>()
    };
    output.result("pool-create", &value, || {
        describe(&request, &plan, arguments.dry_run, &notes())
    });
    Ok(0)
}

/// Most memory of deduplication in addition to the map, in bytes: a map of contents, as large as
/// that of the blocks, the table of contents, and the index.
fn dedup_memory(plan: &PoolPlan) -> u64 {
    plan.map_bytes + plan.ids_bytes + Limits::default().index_bytes
}

/// From raw to usable space, one line for each deduction.
fn space(plan: &CreatePlan) -> String {
    let capacity = plan.capacity();
    let mut table = Table::new(&["SPACE", "BYTES"]);
    table.row([
        "data members".to_owned(),
        Size(capacity.raw_bytes).to_string(),
    ]);
    for (name, bytes) in capacity.rows() {
        table.row([name.to_owned(), format!("-{}", Size(bytes))]);
    }
    table.row(["usable".to_owned(), Size(capacity.usable_bytes).to_string()]);
    table.render()
}

fn describe(request: &CreateRequest, plan: &CreatePlan, dry_run: bool, notes: &str) -> String {
    let head = if dry_run {
        format!(
            "pool '{}' would be created; nothing has been written\n",
            request.name
        )
    } else {
        format!("pool '{}' is created\n", request.name)
    };
    let figures = &plan.plan;
    let mut table = Table::new(&["MEMBER", "SIZE", "NOW"]);
    for member in &plan.members {
        let now = match (member.is_new, member.remarks.is_empty()) {
            (true, _) if dry_run => "a new file".to_owned(),
            (true, _) => "a new file, created".to_owned(),
            (false, true) => "empty".to_owned(),
            (false, false) => member.remarks.join("; "),
        };
        let now = match (&member.partition, dry_run) {
            (None, _) => now,
            (Some(_), true) => format!("{now}; the disk gets a GPT with one partition"),
            (Some(_), false) => format!("{now}; the disk has a GPT with one partition"),
        };
        table.row([
            member.path.display().to_string(),
            Size(member.size_bytes).to_string(),
            now,
        ]);
    }
    let shapes: Vec<String> = figures
        .zones
        .iter()
        .map(|zone| {
            let shape = &zone.shape;
            let (chunk, extent) = (
                Size(u64::from(shape.chunk_rows) * BLOCK_BYTES),
                Size(shape.extent_bytes()),
            );
            format!(
                "layout     {} segments of {} + {} members, {extent} on each, chunks of {chunk}\n",
                zone.segments,
                shape.data,
                shape.redundant()
            )
        })
        .collect();
    let (usual, gibibytes) = (
        windrow_host::memory::default_map_bytes(),
        figures.map_bytes.div_ceil(1 << 30),
    );
    let (option, warning) = match windrow_host::memory::data_bytes_max(usual, figures.map_bytes) {
        Some(data) => (
            format!(" --map-memory {gibibytes}G"),
            format!(
                "note       map memory: {}\n",
                super::pool::map_limit(usual, figures.map_bytes, data)
            ),
        ),
        None => Default::default(),
    };
    let next = if dry_run {
        String::new()
    } else {
        let (pool, volume) = (
            quoted(&request.name),
            quoted(&format!("{}/data", request.name)),
        );
        let address = quoted(&format!("unix:/tmp/{}.nbd", request.name));
        format!(
            "next       windrow volume create {volume} SIZE; windrow serve {pool} --nbd {address}{option}\n"
        )
    };
    format!(
        "{head}{}{}identifier {}\nusable     {} of {}\nmap memory {} when full; at most {} more where volumes deduplicate\n{}{notes}{warning}{next}",
        table.render(),
        space(plan),
        plan.pool(),
        Size(figures.usable_bytes),
        Size(figures.data_bytes),
        Size(figures.map_bytes),
        Size(dedup_memory(figures)),
        shapes.concat()
    )
}

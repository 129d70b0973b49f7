//! The screen of figures.

use super::{CHUNK_BYTES, DemoArguments, Findings, MEMBERS};
use crate::commands::stats;
use serde_json::{Value, json};
use windrow_console::figures::{factor, megabytes};
use windrow_console::values::Size;
use windrow_host::text::quoted;

/// Share of data columns in all columns.
const DATA_SHARE: f64 = (MEMBERS - 2) as f64 / MEMBERS as f64;

impl Findings {
    fn user_rate(&self) -> f64 {
        self.writes_per_second * 4096.0
    }

    fn ratio(&self, bytes_per_second: f64) -> f64 {
        bytes_per_second / (self.linear_bytes_per_second * DATA_SHARE)
    }

    /// The report as JSON.
    pub(super) fn json(&self, arguments: &DemoArguments) -> Value {
        json!({
            "members": MEMBERS, "member_bytes": arguments.size.0, "seed": arguments.seed,
            "linear_bytes_per_second": self.linear_bytes_per_second as u64,
            "load": self.load,
            "random_writes_per_second": self.writes_per_second as u64,
            "random_bytes_per_second": self.user_rate() as u64,
            "in_process_writes_per_second": self.in_process.per_second() as u64,
            "in_process_ratio_to_linear_data_rate_ppm": (self.ratio(self.in_process.bytes_per_second()) * 1e6) as u64,
            "ratio_to_linear_data_rate_ppm": (self.ratio(self.user_rate()) * 1e6) as u64,
            "overwrites_ppm": (self.overwrites * 1e6) as u64,
            "amplification": self.report.amplification,
            "written": self.report.counters.written,
            "user_write_bytes": self.report.counters.user_write_bytes,
            "in_place_raid6": {
                "writes_per_write": 3, "reads_per_write": 3,
                "writes_per_second": (self.in_place.bytes_per_second() / 4096.0) as u64, "bytes_per_second": self.in_place.bytes_per_second() as u64,
            },
            "acknowledged_before_kill": self.acknowledged_before_kill,
            "restart_us": self.restart.as_micros() as u64,
            "recovery_us": self.recovery["recovery_us"],
            "recovery": self.recovery["recovery"],
            "verified_blocks": self.verdict.blocks, "promised_blocks": self.verdict.promised, "newer_blocks": self.verdict.newer,
            "lost_blocks": self.verdict.lost, "wrong_blocks": self.verdict.wrong,
            "elapsed_us": self.elapsed.as_micros() as u64,
            "socket": self.left_running.map(|_| &self.socket), "process": self.left_running, "dir": self.left_running.map(|_| &self.dir),
        })
    }

    /// The report as text.
    pub(super) fn text(&self, arguments: &DemoArguments) -> String {
        let verdict = &self.verdict;
        let kept = if verdict.is_good() {
            "every promise kept"
        } else {
            "PROMISES BROKEN"
        };
        format!(
            "Windrow demo: {MEMBERS} file members of {}, RAID-6, {} load, 4 KiB uniform random writes\n\n\
             members, linear, all at once      {:>12}   (writes of {}, O_DIRECT)\n\
             of which data in RAID-6 ({}/{})     {:>12}\n\
             random writes, in process         {:>12}   {:.0} writes/s, ratio to the linear data rate {}\n\
             random writes, through NBD        {:>12}   {:.0} writes/s, ratio {} (one connection)\n\
             overwrites of the volume          {:>12}\n\
             in place on the same members      {:>12}   {:.0} writes/s, measured before: 3 reads and 3 writes for each, without a journal\n\n\
             {}\n\
             killed with SIGKILL after {} acknowledged writes, device caches partly lost\n\
             served again after {} ms, of which recovery {} ms: {} batches replayed ({})\n\
             verified {} blocks, {} of them promised by a flush: {} lost, {} wrong: {kept}\n\
             {}\n{}",
            arguments.size,
            self.load,
            megabytes(self.linear_bytes_per_second),
            Size(CHUNK_BYTES),
            MEMBERS - 2,
            MEMBERS,
            megabytes(self.linear_bytes_per_second * DATA_SHARE),
            megabytes(self.in_process.bytes_per_second()),
            self.in_process.per_second(),
            factor((self.ratio(self.in_process.bytes_per_second()) * 1e6) as u64),
            megabytes(self.user_rate()),
            self.writes_per_second,
            factor((self.ratio(self.user_rate()) * 1e6) as u64),
            format!("{:.1}", self.overwrites),
            megabytes(self.in_place.bytes_per_second()),
            self.in_place.bytes_per_second() / 4096.0,
            stats::amplification(&self.report),
            self.acknowledged_before_kill,
            self.restart.as_millis(),
            self.recovery["recovery_us"].as_u64().unwrap_or(0) / 1000,
            self.recovery["recovery"]["batches"],
            Size(
                self.recovery["recovery"]["batch_bytes"]
                    .as_u64()
                    .unwrap_or(0)
            ),
            verdict.blocks,
            verdict.promised,
            verdict.lost,
            verdict.wrong,
            format_args!("took {:.0} s", self.elapsed.as_secs_f64()),
            self.play_on(),
        )
    }

    /// Advice on connecting a client; if the server's folder is removed, after the same command
    /// with `--keep`.
    fn play_on(&self) -> String {
        let name = self
            .socket
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let (socket, dir) = match self.left_running {
            Some(_) => (
                self.socket.display().to_string(),
                self.dir.display().to_string(),
            ),
            None => (format!("DIR/{name}"), "DIR".to_owned()),
        };
        let (all, data) = (
            quoted(&format!("nbd+unix://?socket={socket}")),
            quoted(&format!("nbd+unix:///data?socket={socket}")),
        );
        let (control, dir) = (quoted(&format!("{dir}/demo.control")), quoted(&dir));
        let clients = format!(
            "nbdinfo --list {all}\n             nbdcopy FILE {data}\n             \
             qemu-io -f raw {data}\n             windrow stats demo --control {control}\n"
        );
        match self.left_running {
            Some(process) => {
                format!("\nto play on:  {clients}to end:      kill {process}; rm -r {dir}\n")
            }
            None => format!(
                "\nto play on:  the same command with --keep leaves the server running and says where (DIR); then\n             {clients}"
            ),
        }
    }
}

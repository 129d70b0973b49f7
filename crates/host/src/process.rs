//! Other processes as the kernel shows them: the reason why one does not answer.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// A process by its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Process(i32);

impl Process {
    /// The process with this number; `None` for one of another PID namespace, which has no number
    /// here.
    pub fn new(id: i32) -> Option<Self> {
        (id > 0).then_some(Self(id))
    }

    /// Its number.
    pub fn id(self) -> i32 {
        self.0
    }

    /// Its name; empty if it is gone.
    pub fn name(self) -> String {
        std::fs::read_to_string(format!("/proc/{}/comm", self.0))
            .map(|name| name.trim().to_owned())
            .unwrap_or_default()
    }

    /// Reason that it does not proceed, as far as /proc shows it: stopped, frozen, or a thread that
    /// waits in the kernel.
    pub fn waits_for(&self) -> Option<String> {
        let folder = Path::new("/proc").join(self.0.to_string());
        let threads = std::fs::read_dir(folder.join("task")).ok()?;
        let looks: Vec<Look> = threads
            .flatten()
            .filter_map(|thread| Look::of(&thread.path()))
            .collect();
        let frozen = std::fs::read_to_string(folder.join("cgroup"))
            .ok()
            .and_then(|text| frozen_group(&text));
        explain(&looks, frozen.as_deref())
    }
}

/// Other processes that keep a file or block device from being used: those with a lock on the file,
/// else those that have it open. Empty if that cannot be seen, as for a process of another user or
/// the kernel itself.
pub fn holders(path: &Path) -> Vec<Process> {
    let Ok(found) = std::fs::metadata(path) else {
        return Vec::new();
    };
    let is_other = |process: &Process| process.0.cast_unsigned() != std::process::id();
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let locking: Vec<Process> = lock_holders(&locks, found.ino()).filter(is_other).collect();
    let is_it = |other: &std::fs::Metadata| match found.file_type().is_block_device() {
        true => other.file_type().is_block_device() && other.rdev() == found.rdev(),
        false => (other.dev(), other.ino()) == (found.dev(), found.ino()),
    };
    let has_it_open = |process: &Process| {
        let descriptors = std::fs::read_dir(format!("/proc/{}/fd", process.0));
        descriptors.is_ok_and(|descriptors| {
            descriptors.flatten().any(|descriptor| {
                std::fs::metadata(descriptor.path()).is_ok_and(|other| is_it(&other))
            })
        })
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let others = processes
        .filter_map(|entry| Process::new(entry.file_name().to_str()?.parse().ok()?))
        .filter(is_other);
    let open: Vec<Process> = others.filter(has_it_open).collect();
    // An inode number alone may be that of a file on another file system: the process must have the
    // file open as well.
    let both: Vec<Process> = locking
        .iter()
        .copied()
        .filter(|process| open.contains(process))
        .collect();
    if both.is_empty() { open } else { both }
}

/// Processes with a lock on the file of this number, from `/proc/locks`: "1: FLOCK ADVISORY WRITE
/// 708 fd:00:1234 0 EOF".
fn lock_holders(text: &str, inode: u64) -> impl Iterator<Item = Process> {
    text.lines().filter_map(move |line| {
        let mut words = line
            .split_whitespace()
            .skip(1)
            .skip_while(|word| *word == "->")
            .skip(3);
        let process = words.next()?.parse().ok()?;
        let found: u64 = words.next()?.rsplit(':').next()?.parse().ok()?;
        (found == inode).then(|| Process::new(process)).flatten()
    })
}

/// Processes as a text: `process 708 (windrow)`.
pub fn names(processes: &[Process]) -> String {
    processes
        .iter()
        .map(|process| format!("process {} ({})", process.0, process.name()))
        .collect::<Vec<_>>()
        .join(", ")
}

/// Commands that end a process cleanly, for a text. SIGTERM reaches a stopped process only after it
/// continues.
pub fn end_commands(process: u32) -> String {
    match Look::of(&Path::new("/proc").join(process.to_string())) {
        Some(Look { state: 'T', .. }) => format!("`kill -CONT {process}`, then `kill {process}`"),
        _ => format!("`kill {process}`"),
    }
}

/// A thread as /proc shows it.
struct Look {
    name: String,
    state: char,
    wchan: String,
}

impl Look {
    fn of(folder: &Path) -> Option<Self> {
        let status = std::fs::read_to_string(folder.join("status")).ok()?;
        let field = |name: &str| {
            status
                .lines()
                .find_map(|line| line.strip_prefix(name))
                .map(str::trim)
        };
        // The kernel shows 0 to processes that may not know the value.
        let wchan = std::fs::read_to_string(folder.join("wchan"))
            .ok()
            .filter(|wchan| wchan != "0");
        Some(Self {
            name: field("Name:")?.to_owned(),
            state: field("State:")?.chars().next()?,
            wchan: wchan.unwrap_or_default(),
        })
    }
}

fn explain(threads: &[Look], frozen: Option<&str>) -> Option<String> {
    if let Some(group) = frozen {
        return Some(format!("its control group {group} is frozen"));
    }
    match threads.first()?.state {
        'T' => return Some("it is stopped (state T)".to_owned()),
        't' => return Some("a debugger holds it (state t)".to_owned()),
        'Z' | 'X' => return Some("it has ended, and its parent has not taken note".to_owned()),
        _ => {}
    }
    let waits = threads.iter().find(|thread| thread.state == 'D')?;
    let at = if waits.wchan.is_empty() {
        String::new()
    } else {
        format!(" at {}", waits.wchan)
    };
    Some(format!(
        "its thread {} waits in the kernel{at} (state D), as for a device that does not answer",
        waits.name
    ))
}

/// The frozen control group of a process, by its `/proc/PID/cgroup`.
fn frozen_group(text: &str) -> Option<String> {
    let is_frozen = |folder: &Path| {
        let says = |file: &str, text: &str| {
            std::fs::read_to_string(folder.join(file))
                .is_ok_and(|found| found.lines().any(|line| line == text))
        };
        says("cgroup.events", "frozen 1") || says("freezer.state", "FROZEN")
    };
    text.lines().find_map(|line| {
        let (controllers, group) = line
            .split_once(':')
            .and_then(|(_, rest)| rest.split_once(':'))?;
        let root = match controllers {
            "" => "/sys/fs/cgroup",
            "freezer" => "/sys/fs/cgroup/freezer",
            _ => return None,
        };
        is_frozen(Path::new(&format!("{root}{group}"))).then(|| group.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn look(state: char, wchan: &str) -> Look {
        Look {
            name: "reaper".to_owned(),
            state,
            wchan: wchan.to_owned(),
        }
    }

    #[test]
    fn what_a_process_waits_for_is_named() {
        let says = |threads: &[Look], frozen| explain(threads, frozen).unwrap_or_default();
        assert_eq!(
            says(&[look('S', "futex"), look('S', "")], None),
            "",
            "it sleeps, as all do"
        );
        assert!(says(&[look('T', "")], None).contains("stopped (state T)"));
        assert!(says(&[look('S', "do_freezer_trap")], Some("/a")).contains("group /a is frozen"));
        assert!(
            says(&[look('S', ""), look('D', "blk_mq_get_tag")], None)
                .contains("reaper waits in the kernel at blk_mq_get_tag")
        );
        assert_eq!(explain(&[], None), None, "it is gone");
        assert_eq!(Process::new(0), None);
    }

    /// A child that waits for input, and touches no disk: threads of this process wait for the
    /// disks of other tests now and then.
    #[test]
    fn a_child_that_waits_for_input_is_not_stuck() {
        let piped = std::process::Stdio::piped;
        let mut child = std::process::Command::new("cat")
            .stdin(piped())
            .stdout(piped())
            .spawn()
            .unwrap();
        let (input, output) = (
            child.stdin.as_mut().unwrap(),
            child.stdout.as_mut().unwrap(),
        );
        input.write_all(b"x").unwrap();
        output.read_exact(&mut [0]).unwrap();
        let reason = Process::new(child.id().cast_signed()).unwrap().waits_for();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(reason, None);
    }

    #[test]
    fn holders_of_locks_are_read() {
        let text = "1: FLOCK  ADVISORY  WRITE 708 fd:00:1234 0 EOF\n1: -> FLOCK  ADVISORY  WRITE 709 fd:00:1234 0 EOF\n2: OFDLCK ADVISORY READ -1 00:05:1234 0 0\n3: x\n";
        assert_eq!(
            lock_holders(text, 1234)
                .map(Process::id)
                .collect::<Vec<_>>(),
            [708, 709]
        );
        assert_eq!(lock_holders(text, 1).count(), 0);
    }

    #[test]
    fn a_process_that_has_a_file_open_is_found() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(holders(file.path()), [], "this process does not count");
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .stdin(file.reopen().unwrap())
            .spawn()
            .unwrap();
        let found = holders(file.path());
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(found, [Process(child.id().cast_signed())]);
    }

    /// A real child that is stopped.
    #[test]
    fn a_stopped_child_is_seen() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let id = child.id().cast_signed();
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&child),
            rustix::process::Signal::STOP,
        )
        .unwrap();
        let process = Process::new(id).unwrap();
        while process.waits_for().is_none() {
            std::thread::yield_now();
        }
        assert!(process.waits_for().unwrap().contains("stopped"));
        assert_eq!(
            end_commands(child.id()),
            format!("`kill -CONT {id}`, then `kill {id}`")
        );
        assert_eq!(
            end_commands(std::process::id()),
            format!("`kill {}`", std::process::id())
        );
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

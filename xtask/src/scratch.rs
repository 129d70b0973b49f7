//! Temporary folder of a run: every started program has its own inside, and it is removed when the
//! run ends.
//!
//! Fuzz targets keep folders in statics, which are never dropped, and a killed test leaves its
//! files. Neither may fill the machine's folder.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Prefix of the name. It is short: paths of sockets in it have a limit of 107 bytes.
const NAME: &str = "wdrw-";

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Folder of this run, if one was created.
pub fn folder() -> Option<&'static Path> {
    FOLDER.get().map(PathBuf::as_path)
}

/// Owner of the folder: removes it when dropped.
#[derive(Debug)]
pub struct Scratch(());

impl Scratch {
    /// Creates the folder of this run in `parent`, and removes those of killed runs.
    pub fn make(parent: &Path) -> Result<Self, String> {
        for left in left_behind(parent) {
            drop(std::fs::remove_dir_all(left));
        }
        let folder = parent.join(format!("{NAME}{}", std::process::id()));
        std::fs::create_dir_all(&folder)
            .map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
        FOLDER.get_or_init(|| folder);
        Ok(Self(()))
    }

    /// Number of entries in it: at the end of a run, the leftovers.
    pub fn entries(&self) -> usize {
        folder()
            .and_then(|folder| std::fs::read_dir(folder).ok())
            .map_or(0, Iterator::count)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Some(folder) = folder() {
            drop(std::fs::remove_dir_all(folder));
        }
    }
}

/// Folders of runs whose process is gone.
fn left_behind(parent: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let gone = |path: &Path| {
        let process = path
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_prefix(NAME))
            .and_then(|id| id.parse::<u32>().ok());
        process.is_some_and(|id| !Path::new("/proc").join(id.to_string()).exists())
    };
    entries
        .map(|entry| entry.path())
        .filter(|path| gone(path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_leaves_nothing_behind() {
        let parent = std::env::temp_dir().join(format!("xtask-scratch-{}", std::process::id()));
        // No process has such a number.
        let killed = parent.join(format!("{NAME}4194999"));
        std::fs::create_dir_all(killed.join("something")).expect("a folder");
        let scratch = Scratch::make(&parent).expect("a folder");
        let own = folder().expect("it is made").to_path_buf();
        assert!(!killed.exists() && own.starts_with(&parent) && own.is_dir());
        std::fs::create_dir(own.join("left")).expect("a folder");
        assert_eq!(scratch.entries(), 1);
        drop(scratch);
        assert!(!own.exists());
        std::fs::remove_dir(&parent).expect("it is empty");
    }
}

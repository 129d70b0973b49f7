//! Files that commands write on request: traces, reports, pictures, results.
//!
//! A file takes its name when it is complete, and replaces the previous file of that name. That may
//! be a member at rest, named by mistake. So a file with the label of a pool is never replaced, nor
//! anything but a regular file.

use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;
use windrow_host::failure::id;
use windrow_host::{Failure, offline};

/// The failure of a file that cannot be written.
pub fn cannot(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::new(
        id::LOCAL_FILE,
        format!("cannot write {}", path.display()),
        error,
    )
    .remedy("check the folder, your rights to it and its room")
}

/// A temporary file in the folder of `path`, to be renamed later.
pub fn draft(path: &Path) -> Result<NamedTempFile, Failure> {
    may_replace(path)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    // Mode of any new file: the user's mask applies.
    let open_to_all = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    tempfile::Builder::new()
        .permissions(open_to_all)
        .tempfile_in(folder)
        .map_err(|error| cannot(path, error))
}

/// Renames the file to its final name.
pub fn put(part: NamedTempFile, path: &Path) -> Result<(), Failure> {
    // A recording may have taken hours: look again.
    may_replace(path)?;
    part.persist(path)
        .map(drop)
        .map_err(|error| cannot(path, error.error))
}

/// Writes a whole file.
pub fn save(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    let mut part = draft(path)?;
    part.write_all(bytes).map_err(|error| cannot(path, error))?;
    put(part, path)
}

fn may_replace(path: &Path) -> Result<(), Failure> {
    let refused = |id, why: String| {
        Err(
            Failure::new(id, format!("will not replace {}", path.display()), why)
                .remedy("choose another name"),
        )
    };
    // Replacing a link would keep its target, but hardly any user wants that.
    match std::fs::metadata(path) {
        Err(_) => return Ok(()),
        Ok(found) if found.is_file() => {}
        Ok(_) => return refused(id::LOCAL_FILE, "it is not a regular file".to_owned()),
    }
    match offline::examine(path) {
        Ok(Some(member)) => refused(
            id::MEMBER_IN_USE,
            format!(
                "it is member {} of the windrow pool '{}'",
                member.label.member, member.label.pool_name
            ),
        ),
        Ok(None) => Ok(()),
        Err(failure) if failure.id == id::POOL_BUSY => refused(id::MEMBER_IN_USE, failure.why),
        Err(failure) => refused(
            id::MEMBER_IN_USE,
            format!("it may be a member of a pool: {}", failure.why),
        ),
    }
}

//! `pool rename`: another name for a pool at rest.
//!
//! The name is in the superblock, so writing one superblock changes it. Meanwhile the registry has
//! entries under both names: after a crash the pool is found under either.

use clap::Args;
use serde_json::json;
use windrow_console::context::{self, OpenedAtRest, PoolPlace};
use windrow_console::output::Output;
use windrow_console::values::check_pool_name;
use windrow_engine::Control;
use windrow_host::Failure;
use windrow_host::daemon::control_failure;
use windrow_host::failure::id;
use windrow_types::Uuid;

/// Arguments of `pool rename`.
#[derive(Args)]
#[command(after_help = "Examples:
  windrow pool rename tank archive

The pool must be at rest. Its identifier stays, and so do its exports. Services and configuration files that name the pool have to follow.")]
pub struct RenameArguments {
    /// Pool.
    pool: String,
    /// The new name, 1 to 63 bytes.
    name: String,
    #[command(flatten)]
    place: PoolPlace,
}

/// Runs it.
pub fn run(arguments: &RenameArguments, output: &Output) -> Result<u8, Failure> {
    let (name, place) = (&arguments.name, &arguments.place);
    check_pool_name(name)?;
    let what = format!("cannot rename pool '{}'", arguments.pool);
    let found = context::at_rest(&what, &arguments.pool, place)?;
    let registry = context::registry();
    if let Some(other) = registry
        .load(name)?
        .filter(|entry| entry.pool != found.pool)
    {
        let why = format!(
            "another pool of the name '{name}' is known here ({})",
            other.pool
        );
        return Err(Failure::new(id::POOL_VALUE, what, why)
            .remedy("choose another name, or export that pool"));
    }
    let was_exported = found
        .superblock()
        .is_some_and(|superblock| superblock.host == Uuid::default());
    let opened = OpenedAtRest::open(&found, &registry, &place.request())?;
    let known = registry.load_of(&found.name, found.pool)?;
    let is_new = registry.load_of(name, found.pool)?.is_none();
    if let Some(entry) = &known {
        let mut entry = entry.clone();
        entry.name.clone_from(name);
        registry.save(&entry)?;
    }
    let renamed = opened
        .pool
        .control(Control::PoolRename { name: name.clone() })
        .map_err(|error| control_failure(what, &error));
    let closed = opened.close(was_exported);
    if let Err(failure) = renamed.and(closed) {
        if is_new {
            // The entry of the old name finds the pool by its identifier, whatever its name is now.
            registry.forget(name, found.pool)?;
        }
        return Err(failure);
    }
    // Under the old name, and under that of an earlier, interrupted rename.
    for old in [&found.name, &arguments.pool]
        .into_iter()
        .filter(|old| *old != name)
    {
        registry.forget(old, found.pool)?;
    }
    output.result(
        "pool-rename",
        &json!({ "pool": found.pool, "old_name": found.name, "name": name }),
        || format!("pool '{}' is '{name}' now", found.name),
    );
    Ok(0)
}

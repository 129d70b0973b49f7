//! Allowed dependencies between crates. `docs/internals/architecture.md` has the same diagram.
//!
//! The table lists every edge, including those to the vocabulary crates `types` and `io` at the
//! bottom: an edge that is not listed is an edge without a decision.

use super::Findings;
use crate::metadata::{Kind, Metadata, Package};

/// Crate, and the allowed dependencies of its product part. Planned crates are listed already.
pub const ALLOWED: &[(&str, &[&str])] = &[
    ("types", &[]),
    ("geometry", &["types"]),
    // Pure arithmetic on slices and numbers, independent of Windrow.
    ("parity", &[]),
    ("random", &[]),
    ("reduction", &[]),
    ("policy", &[]),
    ("io", &["types"]),
    // Batches and pages are encoded directly into aligned buffers, hence `io`.
    ("format", &["io", "geometry", "types"]),
    ("device", &["io", "types"]),
    ("frontend", &["io", "types"]),
    ("nbd", &["frontend", "io", "types"]),
    ("ublk", &["frontend", "io", "types"]),
    ("vhost", &["frontend", "io", "types"]),
    // HTTP for a text that its caller produces; independent of Windrow.
    ("http", &[]),
    (
        "engine",
        &[
            "format",
            "parity",
            "reduction",
            "policy",
            "io",
            "geometry",
            "types",
        ],
    ),
    // `format` for reading labels before an import, `policy` for the names of victim policies.
    (
        "host",
        &[
            "engine", "device", "frontend", "io", "geometry", "types", "format", "policy",
        ],
    ),
    // Never the engine: a second reader of the format must be able to disagree with it. Parity
    // arithmetic does not read the format.
    (
        "inspect",
        &[
            "format",
            "device",
            "parity",
            "reduction",
            "io",
            "geometry",
            "types",
        ],
    ),
    // `inspect` for a second opinion on what a run left on the members.
    (
        "sim",
        &[
            "random", "engine", "inspect", "format", "io", "geometry", "types",
        ],
    ),
    // Foreign traces: untrusted bytes stay there. It yields requests and is independent of Windrow.
    ("trace", &[]),
    // Drives the engine as the host and the simulator do, on its own members. Its workloads are
    // requests as defined by `trace`.
    (
        "wa-sim",
        &[
            "random", "policy", "trace", "engine", "format", "io", "geometry", "types",
        ],
    ),
    // Numbers in, numbers out; `policy` for the closed forms of cleaning.
    ("plan", &["policy"]),
    // Numbers and names in, SVG, PNG and HTML out; independent of Windrow, and used only by the
    // command.
    ("charts", &[]),
    // Results, failures, tables and sizes of the programs, and their access to a pool. `policy` for
    // the names of policies in properties.
    (
        "console",
        &[
            "host", "policy", "format", "engine", "device", "io", "types",
        ],
    ),
    // Loads of the demo and of the benchmarks.
    ("load", &["host", "device", "frontend", "io", "types"]),
    // Estimate of reduction on given data: a file, an export or an offline volume.
    (
        "estimate",
        &[
            "console",
            "load",
            "host",
            "engine",
            "frontend",
            "reduction",
            "io",
            "types",
        ],
    ),
    // Wiring. `engine`, `device`, `io`, `format`, `types` and `frontend` for the types that travel
    // through it, `reduction` for estimates. Nothing of `tools`.
    (
        "cli",
        &[
            "console",
            "load",
            "estimate",
            "nbd",
            "ublk",
            "vhost",
            "http",
            "host",
            "inspect",
            "frontend",
            "engine",
            "device",
            "format",
            "policy",
            "reduction",
            "io",
            "geometry",
            "types",
        ],
    ),
    // `windrow-lab`. `host` and `device` to record the requests of a served pool.
    (
        "lab",
        &[
            "console", "load", "host", "wa-sim", "plan", "trace", "charts", "device", "policy",
            "types",
        ],
    ),
    // `windrow-bench`. `policy` for closed forms to compare with measurements, `reduction` for the
    // codec alone, `wa-sim` for studies on modelled members.
    (
        "bench",
        &[
            "console",
            "load",
            "estimate",
            "host",
            "nbd",
            "wa-sim",
            "charts",
            "frontend",
            "engine",
            "device",
            "format",
            "policy",
            "reduction",
            "io",
            "geometry",
            "types",
        ],
    ),
    ("xtask", &[]),
];

/// Crates of `tools/`: nothing in `crates/` may depend on them.
const TOOLS: &[&str] = &["sim", "trace", "wa-sim", "plan", "charts", "lab", "bench"];

/// Crates that the engine may not use even in its tests: the simulator alone must be able to drive
/// it.
const NEVER_OF_ENGINE: &[&str] = &["host", "device"];

/// Short name of a crate: `windrow-io` is `io`, the package `windrow` is `cli`.
pub fn short(name: &str) -> &str {
    if name == "windrow" {
        "cli"
    } else {
        name.strip_prefix("windrow-").unwrap_or(name)
    }
}

/// Checks every edge between crates of the workspace.
pub fn check(metadata: &Metadata, findings: &mut Findings) {
    for package in &metadata.members {
        let name = short(&package.name);
        match ALLOWED.iter().find(|(known, _)| *known == name) {
            Some((_, allowed)) => check_package(package, name, allowed, findings),
            None => findings.error(
                "arrows",
                &manifest(name),
                0,
                format!("the crate `{name}` has no line in the table of arrows"),
            ),
        }
    }
}

fn check_package(package: &Package, name: &str, allowed: &[&str], findings: &mut Findings) {
    for dependency in package
        .dependencies
        .iter()
        .filter(|dependency| dependency.ours)
    {
        let target = short(&dependency.name);
        let forbidden = match dependency.kind {
            Kind::Development => name == "engine" && NEVER_OF_ENGINE.contains(&target),
            Kind::Normal | Kind::Build => !allowed.contains(&target),
        };
        if forbidden {
            let may = if allowed.is_empty() {
                "nothing of ours".to_owned()
            } else {
                allowed.join(", ")
            };
            findings.error(
                "arrows",
                &manifest(name),
                0,
                format!("`{name}` may not depend on `{target}`; it may depend on {may}"),
            );
        }
    }
}

/// Path of a crate's manifest.
pub fn manifest(short_name: &str) -> String {
    match short_name {
        "xtask" => "xtask/Cargo.toml".to_owned(),
        tool if TOOLS.contains(&tool) => format!("tools/{tool}/Cargo.toml"),
        product => format!("crates/{product}/Cargo.toml"),
    }
}

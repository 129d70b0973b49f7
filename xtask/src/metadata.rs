//! Output of `cargo metadata` for the workspace, as far as the rules need it.

use crate::tools;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Use of a dependency.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// In the product.
    Normal,
    /// In tests, examples and benchmarks only.
    Development,
    /// In build scripts.
    Build,
}

/// An edge to another package.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dependency {
    /// The other package's name (not its local alias).
    pub name: String,
    /// Use of the dependency.
    pub kind: Kind,
    /// True if it is a crate of this workspace.
    pub ours: bool,
}

/// A package.
#[derive(Clone, Debug, Default)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its licence expression.
    pub license: String,
    /// Dependencies in its manifest.
    pub dependencies: Vec<Dependency>,
}

/// The workspace and its dependencies.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    /// Crates of the workspace.
    pub members: Vec<Package>,
    /// External packages of the resolved graph.
    pub external: Vec<Package>,
    /// For each package id of the graph: name and ids of its product dependencies.
    graph: BTreeMap<String, (String, Vec<String>)>,
    /// Names of the crates of the workspace.
    own: BTreeSet<String>,
}

impl Metadata {
    /// Runs cargo, for the platform of this machine.
    pub fn load(root: &Path) -> Result<Self, String> {
        let mut version = tools::program(root, "rustc");
        version.arg("-vV");
        let version = tools::output(version)?;
        let host = version
            .lines()
            .find_map(|line| line.strip_prefix("host: "))
            .ok_or("rustc does not say its host")?;
        let mut command = tools::cargo(root);
        command.args([
            "metadata",
            "--format-version",
            "1",
            "--filter-platform",
            host,
        ]);
        let text = tools::output(command)?;
        let value: Value = serde_json::from_str(&text)
            .map_err(|error| format!("cargo metadata is not JSON: {error}"))?;
        Self::parse(&value).ok_or_else(|| "cargo metadata has an unknown form".to_owned())
    }

    /// Reads the JSON form; `None` if something expected is missing.
    pub fn parse(value: &Value) -> Option<Self> {
        let member_ids: BTreeSet<&str> = value["workspace_members"]
            .as_array()?
            .iter()
            .filter_map(Value::as_str)
            .collect();
        let mut names = BTreeMap::new();
        let mut packages = BTreeMap::new();
        for package in value["packages"].as_array()? {
            let id = package["id"].as_str()?;
            let parsed = parse_package(package)?;
            names.insert(id, parsed.name.clone());
            packages.insert(id, parsed);
        }
        let mut graph = BTreeMap::new();
        for node in value["resolve"]["nodes"].as_array()? {
            let id = node["id"].as_str()?;
            let needs = node["deps"]
                .as_array()?
                .iter()
                .filter(|dep| is_product(dep))
                .filter_map(|dep| dep["pkg"].as_str());
            graph.insert(
                id.to_owned(),
                (names.get(id)?.clone(), needs.map(str::to_owned).collect()),
            );
        }
        let mut metadata = Self {
            graph,
            ..Self::default()
        };
        for (id, package) in packages {
            if member_ids.contains(id) {
                metadata.own.insert(package.name.clone());
                metadata.members.push(package);
            } else if metadata.graph.contains_key(id) {
                metadata.external.push(package);
            }
        }
        Some(metadata)
    }

    /// Names of all external packages in the product part of `package`, direct and indirect.
    pub fn external_closure(&self, package: &str) -> BTreeSet<String> {
        let mut waiting: Vec<&String> = self
            .graph
            .iter()
            .filter(|(_, (name, _))| name == package)
            .map(|(id, _)| id)
            .collect();
        let mut seen: BTreeSet<&String> = waiting.iter().copied().collect();
        let mut names = BTreeSet::new();
        while let Some((name, needs)) = waiting.pop().and_then(|id| self.graph.get(id)) {
            if !self.own.contains(name) {
                names.insert(name.clone());
            }
            waiting.extend(needs.iter().filter(|id| seen.insert(id)));
        }
        names
    }
}

fn is_product(dependency: &Value) -> bool {
    let kinds = dependency["dep_kinds"].as_array();
    kinds.is_none_or(|kinds| {
        kinds
            .iter()
            .any(|kind| kind["kind"].as_str() != Some("dev"))
    })
}

fn parse_package(package: &Value) -> Option<Package> {
    let mut dependencies = Vec::new();
    for dependency in package["dependencies"].as_array()? {
        let kind = match dependency["kind"].as_str() {
            Some("dev") => Kind::Development,
            Some("build") => Kind::Build,
            _ => Kind::Normal,
        };
        dependencies.push(Dependency {
            name: dependency["name"].as_str()?.to_owned(),
            kind,
            ours: dependency["path"].is_string(),
        });
    }
    let license = package["license"].as_str().unwrap_or_default().to_owned();
    Some(Package {
        name: package["name"].as_str()?.to_owned(),
        license,
        dependencies,
    })
}

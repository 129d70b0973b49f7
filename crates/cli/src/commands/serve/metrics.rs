//! Options and start of the metrics endpoint. The server is a separate crate, which a build can
//! omit (feature `metrics-http`).

use super::config::Config;
use clap::Args;
use std::net::SocketAddr;
use windrow_console::values::number_within;
use windrow_host::failure::id;
use windrow_host::{Failure, Pool};
#[cfg(feature = "metrics-http")]
pub use windrow_http::Server;

/// Upper limit of `--metrics-connections`.
pub const CONNECTIONS_MAX: u64 = 4096;
/// Longest name in the domain name system.
const NAME_BYTES_MAX: usize = 253;

/// Address of the metrics, and the clients that are allowed.
#[derive(Args, Clone, PartialEq, Eq, Debug, Default)]
pub struct MetricsArguments {
    /// Address of the HTTP endpoint with metrics for Prometheus.
    #[arg(long, value_name = "ADDRESS")]
    pub metrics: Option<SocketAddr>,
    /// Host name that scrapes may use, in addition to addresses, `localhost` and the name of this
    /// machine (may be repeated).
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    pub metrics_host: Vec<String>,
    /// Most connections for metrics at a time; else 64. A new one displaces the oldest idle one. 1
    /// to 4096.
    #[arg(long, value_name = "N", value_parser = number_within(1, CONNECTIONS_MAX))]
    pub metrics_connections: Option<u64>,
}

impl MetricsArguments {
    /// Fills absent values from the configuration file.
    pub fn or(self, config: &Config) -> Self {
        let file = &config.metrics;
        Self {
            metrics: self.metrics.or(file.metrics),
            metrics_host: if self.metrics_host.is_empty() {
                file.metrics_host.clone()
            } else {
                self.metrics_host
            },
            metrics_connections: self.metrics_connections.or(file.metrics_connections),
        }
    }
}

/// A host name without a port.
pub fn host_name(text: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        !label.is_empty()
            && label
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
    };
    let is_name = text.len() <= NAME_BYTES_MAX && text.split('.').all(is_label);
    if is_name {
        Ok(text.to_owned())
    } else {
        Err("it must be a host name without a port, such as store.example.com".to_owned())
    }
}

impl MetricsArguments {
    /// Refuses options that cannot be served. Called before the pool is opened.
    ///
    /// # Errors
    /// Other hosts could reach the address and may not, or this build has no HTTP server.
    pub fn check(&self, allow_remote: bool) -> Result<(), Failure> {
        let Some(address) = self.metrics else {
            return Ok(());
        };
        let what = format!("cannot serve metrics at {address}");
        if !allow_remote && !address.ip().to_canonical().is_loopback() {
            let why = "it is not a loopback address and remote clients are not allowed";
            let remedy = "choose another address with --metrics, or give --allow-remote: there is no authentication";
            return Err(Failure::new(id::SERVE, what, why).remedy(remedy));
        }
        if cfg!(not(feature = "metrics-http")) {
            let why = "this windrow was built without the feature `metrics-http`";
            let remedy = "leave --metrics out, or use a build with it; `windrow stats POOL --prometheus` prints the page";
            return Err(Failure::new(id::NOT_AVAILABLE, what, why).remedy(remedy));
        }
        Ok(())
    }

    /// Starts the endpoint, if one is requested.
    ///
    /// # Errors
    /// The address cannot be listened at.
    #[cfg(feature = "metrics-http")]
    pub fn start(&self, pool: &Pool) -> Result<Option<Server>, Failure> {
        let Some(address) = self.metrics else {
            return Ok(None);
        };
        let default = windrow_http::Options::at(address);
        let options = windrow_http::Options {
            hosts: windrow_http::Hosts::new(self.metrics_host.iter().cloned().chain(own_name())),
            connections_max: self
                .metrics_connections
                .map_or(default.connections_max, |count| count as usize),
            ..default
        };
        let pool = pool.clone();
        // The report is a copy, so the page is written without a lock.
        let page = move || {
            pool.report()
                .map(|report| windrow_host::metrics::render(&report))
        };
        let failure = |error| {
            Failure::new(
                id::SERVE,
                format!("cannot serve metrics at {address}"),
                error,
            )
            .remedy("choose another address with --metrics")
        };
        Server::start(options, page).map(Some).map_err(failure)
    }

    /// Starts nothing: this build has no endpoint, and [`MetricsArguments::check`] has refused one.
    ///
    /// # Errors
    /// None.
    #[cfg(not(feature = "metrics-http"))]
    pub fn start(&self, _: &Pool) -> Result<Option<Server>, Failure> {
        Ok(None)
    }
}

/// Stands for the server in a build without it.
#[cfg(not(feature = "metrics-http"))]
pub enum Server {}

#[cfg(not(feature = "metrics-http"))]
impl Server {
    /// Address that it listens at.
    pub fn address(&self) -> SocketAddr {
        match *self {}
    }
}

/// Name of this machine from the kernel.
#[cfg(feature = "metrics-http")]
fn own_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    host_name(text.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_that_cannot_be_is_refused_at_once() {
        let at = |address: &str| MetricsArguments {
            metrics: address.parse().ok(),
            ..MetricsArguments::default()
        };
        let refused = at("0.0.0.0:1").check(false).expect_err("refused");
        assert!(
            refused.id == id::SERVE && refused.remedy.contains("--allow-remote"),
            "{refused}"
        );
        assert_eq!(MetricsArguments::default().check(false), Ok(()));
        for (address, allow_remote) in [
            ("0.0.0.0:1", true),
            ("127.0.0.1:1", false),
            ("[::ffff:127.0.0.1]:1", false),
            ("[::1]:1", false),
        ] {
            let id = at(address)
                .check(allow_remote)
                .err()
                .map(|failure| failure.id);
            assert_eq!(
                id.as_deref(),
                cfg!(not(feature = "metrics-http")).then_some(id::NOT_AVAILABLE),
                "{address}"
            );
        }
    }

    #[test]
    fn a_host_name_has_no_port_and_no_path() {
        for name in ["store", "store.example.com", "a-b_c.d", "10.0.0.7"] {
            assert_eq!(host_name(name).as_deref(), Ok(name));
        }
        for name in [
            "",
            ".",
            "a..b",
            "a.",
            "a:80",
            "a/b",
            "a b",
            "*",
            "http://a",
            &"a".repeat(254),
        ] {
            assert!(host_name(name).is_err(), "{name}");
        }
    }
}

//! Host names that requests may use.
//!
//! A browser sends the name in the page's address. A hostile page has its own name and lets it
//! resolve to an address of this machine (DNS rebinding); the browser then takes the answer for the
//! page's own. An address and a name of this machine cannot be used for that.

use hyper::header::HOST;
use hyper::{HeaderMap, Uri, Version};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Names that are allowed in addition to addresses and `localhost`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Hosts(Vec<String>);

/// Verdict on the host of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    Allowed,
    Foreign,
    /// It names none, or several.
    Malformed,
}

impl Hosts {
    /// These names, without ports.
    pub fn new(names: impl IntoIterator<Item = String>) -> Self {
        Self(names.into_iter().collect())
    }

    /// Verdict on a request.
    pub(crate) fn judge(&self, version: Version, uri: &Uri, headers: &HeaderMap) -> Verdict {
        let mut named = headers.get_all(HOST).iter();
        let header = match (named.next(), named.next()) {
            (Some(header), None) => header.to_str().ok(),
            // Version 1.0 does not require it, and every browser sends it.
            (None, _) if version == Version::HTTP_10 => Some("localhost"),
            _ => None,
        };
        let Some(header) = header else {
            return Verdict::Malformed;
        };
        // A host in the target replaces that of the header; both must be allowed.
        let target = uri
            .authority()
            .map_or("localhost", |authority| authority.as_str());
        if self.allows(header) && self.allows(target) {
            Verdict::Allowed
        } else {
            Verdict::Foreign
        }
    }

    /// True if `host`, with or without a port, is allowed.
    fn allows(&self, host: &str) -> bool {
        let is_port = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
        if let Some(rest) = host.strip_prefix('[') {
            let Some((address, port)) = rest.split_once(']') else {
                return false;
            };
            return address.parse::<Ipv6Addr>().is_ok()
                && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port));
        }
        let (name, port) = host.split_once(':').unwrap_or((host, ""));
        let plain = name.strip_suffix('.').unwrap_or(name);
        let is_named = || {
            self.0
                .iter()
                .map(String::as_str)
                .chain(["localhost"])
                .any(|allowed| allowed.eq_ignore_ascii_case(plain))
        };
        is_port(port) && (name.parse::<Ipv4Addr>().is_ok() || is_named())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_chosen_names_are_allowed_and_nothing_that_resembles_them() {
        let hosts = Hosts::new(["store.example".to_owned()]);
        let right = [
            "127.0.0.1",
            "10.0.0.7:9464",
            "[::1]",
            "[::1]:9464",
            "localhost",
            "LOCALHOST:9464",
            "localhost.",
            "store.example",
            "Store.Example.:1",
        ];
        for host in right {
            assert!(hosts.allows(host), "{host}");
        }
        let wrong = [
            "",
            "evil.example",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil@127.0.0.1",
            "127.0.0.1@evil",
            "127.0.0.1:80:80",
            "127.0.0.1:x",
            "::1",
            "[::1",
            "[::1]x",
            "[evil]",
            "[::1]:x",
            "0x7f.1",
            "2130706433",
            "store.example..",
            "a.store.example",
            "localhost ",
        ];
        for host in wrong {
            assert!(!hosts.allows(host), "{host}");
        }
    }
}

//! Flags of `horolog serve` for rate limits and lists of prefixes.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use horolog_server::LimitsConfig;
use horolog_sys::netlink::Prefix;

use crate::failure::Failure;
use crate::values;

#[derive(Args, Debug)]
pub(crate) struct LimitsArgs {
    /// Requests per second that each client may send in the long run [default: no limit].
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    limit_rate: Option<f64>,
    /// Requests that a client may send at once before its rate counts. Eight let a client start
    /// with iburst.
    #[arg(long, value_name = "N", default_value_t = 8)]
    limit_burst: u32,
    /// Requests per second of all clients together that were not known before. A flood from
    /// made-up addresses exhausts this and leaves known clients alone. Requests longer than a
    /// header (NTS, MAC) have as much again of their own [default: no limit].
    #[arg(long, value_name = "RATE", value_parser = values::rate)]
    limit_newcomers: Option<f64>,
    /// How long a client must be silent until it is forgotten where its place is needed.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "3600s")]
    limit_idle: Duration,
    /// Clients that there is room for, 8 bytes each, rounded up to a power of two, up to 268435456
    /// [default: 1048576].
    #[arg(long, value_name = "N")]
    limit_clients: Option<usize>,
    /// Bits of an IPv4 address that tell one client from another.
    #[arg(long, value_name = "BITS", default_value_t = 32)]
    limit_ipv4_prefix: u8,
    /// Bits of an IPv6 address that tell one client from another.
    #[arg(long, value_name = "BITS", default_value_t = 64)]
    limit_ipv6_prefix: u8,
    /// Prefix to serve; can be given more than once. Others are then not served. Of all prefixes
    /// allowed or denied, the longest that holds a client decides.
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    allow: Vec<Prefix>,
    /// File of prefixes to serve, one a line; '#' begins a comment.
    #[arg(long, value_name = "FILE")]
    allow_file: Option<PathBuf>,
    /// Prefix not to serve; can be given more than once.
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    deny: Vec<Prefix>,
    /// File of prefixes not to serve, one a line; '#' begins a comment.
    #[arg(long, value_name = "FILE")]
    deny_file: Option<PathBuf>,
    /// Tell a client that asks too often so (kiss code RATE), once for each request answered.
    #[arg(long)]
    kiss_rate: bool,
    /// Tell clients that are denied so (kiss code DENY), at most 1,000 a second.
    #[arg(long)]
    kiss_deny: bool,
}

impl LimitsArgs {
    pub(crate) fn resolve(self) -> Result<LimitsConfig, Failure> {
        let default = LimitsConfig::default();
        Ok(LimitsConfig {
            rate: self.limit_rate,
            burst: self.limit_burst,
            newcomers: self.limit_newcomers,
            idle: self.limit_idle,
            clients: self.limit_clients.unwrap_or(default.clients),
            ipv4_prefix: self.limit_ipv4_prefix,
            ipv6_prefix: self.limit_ipv6_prefix,
            allow: with_file(self.allow, self.allow_file.as_deref())?,
            deny: with_file(self.deny, self.deny_file.as_deref())?,
            kiss_rate: self.kiss_rate,
            kiss_deny: self.kiss_deny,
        })
    }
}

/// A prefix, or a single address.
fn prefix(text: &str) -> Result<Prefix, String> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Prefix::host(address)),
        Err(_) => {
            text.parse().map_err(|error: <Prefix as std::str::FromStr>::Err| error.to_string())
        }
    }
}

fn with_file(mut prefixes: Vec<Prefix>, file: Option<&Path>) -> Result<Vec<Prefix>, Failure> {
    let Some(path) = file else { return Ok(prefixes) };
    let text = fs::read_to_string(path).map_err(|error| {
        Failure::usage(format!("cannot read the list {}: {error}", path.display()))
    })?;
    prefixes.extend(parse(&text).map_err(|(line, error)| {
        Failure::usage(format!("{}, line {line}: {error}", path.display()))
    })?);
    Ok(prefixes)
}

/// The prefixes of a file's text, or the number of the line that holds none, and why.
fn parse(text: &str) -> Result<Vec<Prefix>, (usize, String)> {
    let mut prefixes = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if !line.is_empty() {
            prefixes.push(prefix(line).map_err(|error| (index + 1, error))?);
        }
    }
    Ok(prefixes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_comments_addresses_and_prefixes() {
        let list = parse("# all\n10.0.0.0/8 # private\n\n  192.0.2.1\nfd00::/8\r\n").unwrap();
        let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.0/8", "192.0.2.1/32", "fd00::/8"]);
    }

    #[test]
    fn the_line_that_is_wrong_is_named() {
        let (line, error) = parse("10.0.0.0/8\n\n10.0.0.0/33\n").unwrap_err();
        assert!(line == 3 && error.contains("too long"), "{line}: {error}");
        assert_eq!(parse("here\n").unwrap_err().0, 1);
    }
}

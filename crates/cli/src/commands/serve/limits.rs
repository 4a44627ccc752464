//! Flags of `horolog serve` for rate limits, and for allowed and denied prefixes of client
//! addresses.

#![allow(clippy::doc_markdown, reason = "these comments are the help texts")]

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use horolog_server::LimitsConfig;
use horolog_time::text::Rate;
use horolog_wire::prefix::Prefix;

use crate::failure::{CommandFailure, read_failure};
use crate::values;

#[derive(Args, Debug)]
pub(crate) struct ServeLimitsArgs {
    /// Long-term limit on requests per second of each client [default: no limit].
    #[arg(long, value_name = "RATE")]
    limit_rate: Option<Rate>,
    /// Requests that a client may send at once before the rate limit applies. Eight let a client
    /// start with iburst.
    #[arg(long, value_name = "N", default_value_t = 8)]
    limit_burst: u32,
    /// Limit on requests per second of all new clients together, those without an entry in the
    /// table of --limit-clients [default: no limit].
    ///
    /// A flood from forged addresses exhausts this and leaves known clients unaffected. Requests
    /// with a MAC or extension fields (NTS) have a separate limit of the same value.
    #[arg(long, value_name = "RATE")]
    limit_new_clients: Option<Rate>,
    /// Idle time after which a new client may take a client's entry in the table of
    /// --limit-clients.
    #[arg(long, value_name = "TIME", value_parser = values::positive_duration,
          default_value = "3600s")]
    limit_idle: Duration,
    /// Number of clients in the table of the rate limits, 8 bytes each, rounded up to a power of
    /// two, up to 268435456 [default: 1048576].
    #[arg(long, value_name = "N")]
    limit_clients: Option<usize>,
    /// Bits of an IPv4 address that identify a client.
    #[arg(long, value_name = "BITS", default_value_t = 32)]
    limit_ipv4_prefix: u8,
    /// Bits of an IPv6 address that identify a client.
    #[arg(long, value_name = "BITS", default_value_t = 64)]
    limit_ipv6_prefix: u8,
    /// Prefix to serve. Repeatable. Other clients are then not served. Of all allowed and denied
    /// prefixes, the longest match decides.
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    allow: Vec<Prefix>,
    /// File of prefixes to serve, one on each line; '#' begins a comment.
    #[arg(long, value_name = "FILE")]
    allow_file: Option<PathBuf>,
    /// Prefix not to serve. Repeatable.
    #[arg(long, value_name = "PREFIX", value_parser = prefix)]
    deny: Vec<Prefix>,
    /// File of prefixes not to serve, one on each line; '#' begins a comment.
    #[arg(long, value_name = "FILE")]
    deny_file: Option<PathBuf>,
    /// Send a Kiss-o'-Death (KoD, code RATE) to clients over the rate limit, at most one for each
    /// normal reply to the client.
    #[arg(long)]
    kiss_rate: bool,
    /// Send a Kiss-o'-Death (KoD, code DENY) to denied clients, at most 1,000 per second.
    #[arg(long)]
    kiss_deny: bool,
}

impl ServeLimitsArgs {
    pub(crate) fn resolve(self) -> Result<LimitsConfig, CommandFailure> {
        let default = LimitsConfig::default();
        Ok(LimitsConfig {
            rate: self.limit_rate.map(Rate::per_second),
            burst: self.limit_burst,
            new_client_rate: self.limit_new_clients.map(Rate::per_second),
            idle: self.limit_idle,
            clients: self.limit_clients.unwrap_or(default.clients),
            ipv4_prefix: self.limit_ipv4_prefix,
            ipv6_prefix: self.limit_ipv6_prefix,
            allow: with_file_prefixes(self.allow, self.allow_file.as_deref())?,
            deny: with_file_prefixes(self.deny, self.deny_file.as_deref())?,
            kiss_rate: self.kiss_rate,
            kiss_deny: self.kiss_deny,
        })
    }
}

/// Parses a prefix in CIDR notation, or an address, which stands for a prefix of full length.
fn prefix(text: &str) -> Result<Prefix, String> {
    match text.parse::<IpAddr>() {
        Ok(address) => Ok(Prefix::host(address)),
        Err(_) => {
            text.parse().map_err(|error: <Prefix as std::str::FromStr>::Err| error.to_string())
        }
    }
}

fn with_file_prefixes(
    mut prefixes: Vec<Prefix>,
    file: Option<&Path>,
) -> Result<Vec<Prefix>, CommandFailure> {
    let Some(path) = file else { return Ok(prefixes) };
    let text = fs::read_to_string(path).map_err(|error| read_failure("the list ", path, &error))?;
    prefixes.extend(parse_prefixes(&text).map_err(|(line, error)| {
        CommandFailure::usage(format!("{}, line {line}: {error}", path.display()))
    })?);
    Ok(prefixes)
}

/// Parses a text with one prefix per line; `#` begins a comment. The error is the number of the
/// first invalid line, counted from 1, and the reason.
fn parse_prefixes(text: &str) -> Result<Vec<Prefix>, (usize, String)> {
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
        let list =
            parse_prefixes("# all\n10.0.0.0/8 # private\n\n  192.0.2.1\nfd00::/8\r\n").unwrap();
        let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["10.0.0.0/8", "192.0.2.1/32", "fd00::/8"]);
    }

    #[test]
    fn the_line_that_is_wrong_is_named() {
        let (line, error) = parse_prefixes("10.0.0.0/8\n\n10.0.0.0/33\n").unwrap_err();
        assert!(line == 3 && error.contains("too long"), "{line}: {error}");
        assert_eq!(parse_prefixes("here\n").unwrap_err().0, 1);
    }
}

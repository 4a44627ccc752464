//! How a source is asked for: `KIND[:ARGUMENT][,KEY=VALUE...]`, as a flag and a configuration file
//! write it. Pure: whether the thing is there is found out when it is opened.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::system::System;
use crate::{Fault, Source};

/// A source that was asked for, read but not opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceSpec {
    /// The text that it was read from: its name in messages.
    pub text: String,
    /// What it is.
    pub(crate) kind: Kind,
}

/// The kinds of sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    System(Ask),
}

/// Whom the source `system` asks about the system clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Ask {
    /// chronyd where it answers, else ntpd where it answers, else the kernel.
    Auto,
    /// chronyd, there and nowhere else.
    Chronyd(ChronydAddress),
    /// ntpd, there and nowhere else.
    Ntpd(SocketAddr),
    /// The kernel alone.
    Kernel,
}

/// Where chronyd takes commands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChronydAddress {
    /// A UDP port.
    Udp(SocketAddr),
    /// A Unix datagram socket.
    Unix(PathBuf),
}

/// What is wrong with the text of a source; one line for the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SpecError(String);

impl SourceSpec {
    /// Opens it for a server that listens at `own`.
    pub fn open(&self, own: &[SocketAddr]) -> Result<Box<dyn Source>, Fault> {
        let name = self.text.clone();
        match &self.kind {
            Kind::System(ask) => Ok(Box::new(System::new(name, ask, own))),
        }
    }
}

fn wrong<T>(message: impl Into<String>) -> Result<T, SpecError> {
    Err(SpecError(message.into()))
}

impl FromStr for SourceSpec {
    type Err = SpecError;

    fn from_str(text: &str) -> Result<Self, SpecError> {
        let mut parts = text.split(',');
        let head = parts.next().unwrap_or_default();
        let (kind, argument) = match head.split_once(':') {
            Some((kind, argument)) => (kind, Some(argument)),
            None => (head, None),
        };
        let mut options = Options::read(parts)?;
        let kind = match kind {
            "system" => Kind::System(ask(argument, &mut options)?),
            _ => return wrong(format!("there is no source '{kind}'; choose one of {KINDS}")),
        };
        options.finish(head)?;
        Ok(Self { text: text.to_owned(), kind })
    }
}

const KINDS: &str = "system, phc, shm, sock and gpsd";

fn ask(argument: Option<&str>, options: &mut Options<'_>) -> Result<Ask, SpecError> {
    let (chronyd, ntpd) = (options.take("chronyd"), options.take("ntpd"));
    match (argument, chronyd, ntpd) {
        (None, None, None) => Ok(Ask::Auto),
        (Some("kernel"), None, None) => Ok(Ask::Kernel),
        (None, Some(at), None) => chronyd_address(at).map(Ask::Chronyd),
        (None, None, Some(at)) => address("ntpd", at).map(Ask::Ntpd),
        _ => wrong(
            "write system, system:kernel, system,chronyd=PATH, system,chronyd=ADDR:PORT or \
             system,ntpd=ADDR:PORT",
        ),
    }
}

fn chronyd_address(text: &str) -> Result<ChronydAddress, SpecError> {
    if text.starts_with('/') {
        return Ok(ChronydAddress::Unix(text.into()));
    }
    address("chronyd", text).map(ChronydAddress::Udp)
}

fn address(key: &str, text: &str) -> Result<SocketAddr, SpecError> {
    text.parse().or_else(|_| {
        wrong(format!("'{text}' is no address; write {key}=ADDR:PORT, as in {key}=127.0.0.1:323"))
    })
}

/// The `KEY=VALUE` pairs of a source, taken one by one.
struct Options<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Options<'a> {
    fn read(parts: impl Iterator<Item = &'a str>) -> Result<Self, SpecError> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                return wrong(format!("'{part}' is no option; write KEY=VALUE"));
            };
            if pairs.iter().any(|(known, _)| *known == key) {
                return wrong(format!("{key} is given twice"));
            }
            pairs.push((key, value));
        }
        Ok(Self(pairs))
    }

    fn take(&mut self, key: &str) -> Option<&'a str> {
        let position = self.0.iter().position(|(known, _)| *known == key)?;
        Some(self.0.remove(position).1)
    }

    fn finish(self, head: &str) -> Result<(), SpecError> {
        match self.0.first() {
            None => Ok(()),
            Some((key, _)) => wrong(format!("the source {head} has no option {key}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Kind {
        text.parse::<SourceSpec>().unwrap().kind
    }

    #[test]
    fn the_system_is_asked_in_several_ways() {
        assert_eq!(kind("system"), Kind::System(Ask::Auto));
        assert_eq!(kind("system:kernel"), Kind::System(Ask::Kernel));
        let unix = ChronydAddress::Unix("/run/c.sock".into());
        assert_eq!(kind("system,chronyd=/run/c.sock"), Kind::System(Ask::Chronyd(unix)));
        let udp = ChronydAddress::Udp("[::1]:323".parse().unwrap());
        assert_eq!(kind("system,chronyd=[::1]:323"), Kind::System(Ask::Chronyd(udp)));
        let ntpd = Ask::Ntpd("10.0.0.1:123".parse().unwrap());
        assert_eq!(kind("system,ntpd=10.0.0.1:123"), Kind::System(ntpd));
    }

    #[test]
    fn what_is_wrong_is_said_in_one_line() {
        for bad in [
            "",
            "sytem",
            "system:chrony",
            "system,chronyd",
            "system,chronyd=there",
            "system,chronyd=/a,ntpd=10.0.0.1:123",
            "system,stratum=1",
            "system,chronyd=/a,chronyd=/b",
        ] {
            let message = bad.parse::<SourceSpec>().unwrap_err().to_string();
            assert!(!message.is_empty() && !message.contains('\n'), "{bad}: {message}");
        }
    }
}

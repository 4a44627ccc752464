//! Text form of a time source: `KIND[:ARGUMENT][,KEY=VALUE...]`, as in flags and configuration
//! files. Parsing does not check whether the device is present.

use std::fs;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use horolog_sys::serial;
use horolog_sys::zone::{self, AddressError};
use horolog_time::{NS_PER_S, Span};

use crate::gnss::GnssSource;
use crate::gpsd::{self, GpsdSource, resolve_address};
use crate::phc::{PhcSource, PhcSourceTimescale};
use crate::reference::ReferenceClockSettings;
use crate::shm::ShmSource;
use crate::sock::{self, SockSource};
use crate::system::{CHRONYD_SOCKET, SystemClockSource};
use crate::{PollableTimeSource, SourceError};

/// Specification of a time source, parsed but not opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SourceSpec {
    /// Text of the specification, used as its name in messages.
    pub text: String,
    /// Kind of the source.
    pub(crate) kind: SourceKind,
}

impl SourceSpec {
    /// Returns the directories in which the source creates sockets, which it removes at its end.
    #[must_use]
    pub fn directories(&self) -> Vec<PathBuf> {
        let socket = match &self.kind {
            SourceKind::Sock(path, _)
            | SourceKind::System(DaemonChoice::Chronyd(ChronydAddress::Unix(path))) => {
                Some(path.as_path())
            }
            SourceKind::System(DaemonChoice::Auto) => Some(Path::new(CHRONYD_SOCKET)),
            _ => None,
        };
        socket.and_then(Path::parent).map(Path::to_owned).into_iter().collect()
    }

    /// Checks that the device, host or directory of the source is present, without opening it.
    ///
    /// # Errors
    ///
    /// Names the missing one, in one line.
    pub fn check_present(&self) -> Result<(), SourceError> {
        match &self.kind {
            SourceKind::Phc(path, ..) | SourceKind::Gnss(path, ..) => check_device_present(path),
            SourceKind::Gpsd(address, _) => resolve_address(address).map(drop),
            SourceKind::Sock(path, _) => sock::check_can_create(path),
            _ => Ok(()),
        }
    }

    /// Returns the devices that are reopened after they have vanished.
    #[must_use]
    pub fn devices(&self) -> Vec<PathBuf> {
        match &self.kind {
            SourceKind::Gnss(path, ..) | SourceKind::Phc(path, ..) => vec![path.clone()],
            _ => Vec::new(),
        }
    }
}

/// Kind of a source.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum SourceKind {
    System(DaemonChoice),
    Phc(PathBuf, PhcSourceTimescale, ReferenceClockSettings),
    Shm(u8, ReferenceClockSettings),
    Sock(PathBuf, ReferenceClockSettings),
    Gpsd(String, ReferenceClockSettings),
    Gnss(PathBuf, u32, ReferenceClockSettings),
}

/// Daemon that the source `system` queries about the system clock.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum DaemonChoice {
    /// chronyd if it replies, else ntpd if it replies, else the kernel.
    Auto,
    /// chronyd at this address only.
    Chronyd(ChronydAddress),
    /// ntpd at this address only.
    Ntpd(SocketAddr),
    /// The kernel without a daemon.
    Kernel,
}

/// Address of chronyd's command socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChronydAddress {
    /// A UDP port.
    Udp(SocketAddr),
    /// A Unix datagram socket.
    Unix(PathBuf),
}

/// Error in the text of a source; one line for the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SourceSpecError(String);

impl SourceSpec {
    /// Opens the source for a server with the listen addresses `server_addresses`.
    pub fn open(
        &self,
        server_addresses: &[SocketAddr],
    ) -> Result<Box<dyn PollableTimeSource>, SourceError> {
        let name = self.text.clone();
        match &self.kind {
            SourceKind::System(choice) => {
                Ok(Box::new(SystemClockSource::new(name, choice, server_addresses)))
            }
            SourceKind::Phc(path, scale, claim) => {
                Ok(Box::new(PhcSource::open(name, path, *scale, *claim)?))
            }
            SourceKind::Shm(unit, claim) => Ok(Box::new(ShmSource::open(name, *unit, *claim)?)),
            SourceKind::Sock(path, claim) => Ok(Box::new(SockSource::open(name, path, *claim)?)),
            SourceKind::Gpsd(address, claim) => {
                Ok(Box::new(GpsdSource::open(name, address.clone(), *claim)?))
            }
            SourceKind::Gnss(path, speed, claim) => {
                Ok(Box::new(GnssSource::open(name, path, *speed, *claim)?))
            }
        }
    }
}

/// Checks that `path` is a character device, without opening it: that could disturb its users, for
/// example by setting the speed of a serial line.
pub(crate) fn check_device_present(path: &Path) -> Result<(), SourceError> {
    let failed = |what: &str| Err(SourceError::Unusable(format!("{}: {what}", path.display())));
    match fs::metadata(path) {
        Ok(found) if found.file_type().is_char_device() => Ok(()),
        Ok(_) => failed("not a device"),
        Err(error) if error.kind() == ErrorKind::NotFound => failed("no such device"),
        Err(error) => failed(&error.to_string()),
    }
}

pub(crate) fn spec_error<T>(message: impl Into<String>) -> Result<T, SourceSpecError> {
    Err(SourceSpecError(message.into()))
}

impl FromStr for SourceSpec {
    type Err = SourceSpecError;

    fn from_str(text: &str) -> Result<Self, SourceSpecError> {
        let mut parts = text.split(',');
        let head = parts.next().unwrap_or_default();
        let (kind, argument) = match head.split_once(':') {
            Some((kind, argument)) => (kind, Some(argument)),
            None => (head, None),
        };
        let mut options = SpecOptions::read(parts)?;
        let kind = match kind {
            "system" => SourceKind::System(parse_daemon_choice(argument, &mut options)?),
            "phc" => parse_phc(argument, &mut options)?,
            "shm" => parse_shm(argument, &mut options)?,
            "sock" => parse_sock(argument, &mut options)?,
            "gnss" => parse_gnss(argument, &mut options)?,
            "gpsd" => {
                let address = argument.unwrap_or(GPSD_ADDRESS).to_owned();
                if gpsd::split_address(&address).is_err() {
                    return spec_error("write gpsd or gpsd:HOST:PORT, as in gpsd:127.0.0.1:2947");
                }
                SourceKind::Gpsd(address, parse_settings(*b"GPS\0", &mut options)?)
            }
            _ => return spec_error(format!("unknown source '{kind}'; choose one of {KINDS}")),
        };
        options.finish(head)?;
        Ok(Self { text: text.to_owned(), kind })
    }
}

/// Default address of gpsd.
const GPSD_ADDRESS: &str = "127.0.0.1:2947";
const KINDS: &str = "system, phc, shm, sock, gnss and gpsd";
/// Default speed of a serial line in bits per second, the factory setting of most receivers.
pub(crate) const GNSS_SPEED: u32 = 9_600;

fn parse_daemon_choice(
    argument: Option<&str>,
    options: &mut SpecOptions<'_>,
) -> Result<DaemonChoice, SourceSpecError> {
    let (chronyd, ntpd) = (options.take("chronyd"), options.take("ntpd"));
    match (argument, chronyd, ntpd) {
        (None, None, None) => Ok(DaemonChoice::Auto),
        (Some("kernel"), None, None) => Ok(DaemonChoice::Kernel),
        (None, Some(at), None) => parse_chronyd_address(at).map(DaemonChoice::Chronyd),
        (None, None, Some(at)) => parse_address("ntpd", at).map(DaemonChoice::Ntpd),
        _ => spec_error(
            "write system, system:kernel, system,chronyd=PATH, system,chronyd=ADDR:PORT or \
             system,ntpd=ADDR:PORT",
        ),
    }
}

fn parse_phc(
    argument: Option<&str>,
    options: &mut SpecOptions<'_>,
) -> Result<SourceKind, SourceSpecError> {
    let path = parse_absolute_path(argument, "write phc:/dev/ptpN, as in phc:/dev/ptp0")?;
    let tai_offset = match options.take("tai-offset").map(str::parse) {
        None => None,
        Some(Ok(seconds)) => Some(seconds),
        Some(Err(_)) => return spec_error("tai-offset takes whole seconds, as in tai-offset=37"),
    };
    let scale = match (options.take("scale"), tai_offset) {
        (None | Some("tai"), offset) => PhcSourceTimescale::Tai(offset),
        (Some("utc"), None) => PhcSourceTimescale::Utc,
        _ => return spec_error("scale takes tai, if necessary with tai-offset=SECONDS, or utc"),
    };
    Ok(SourceKind::Phc(path, scale, parse_settings(*b"PHC\0", options)?))
}

fn parse_shm(
    argument: Option<&str>,
    options: &mut SpecOptions<'_>,
) -> Result<SourceKind, SourceSpecError> {
    match argument.unwrap_or("0").parse() {
        Ok(unit) => Ok(SourceKind::Shm(unit, parse_settings(*b"SHM\0", options)?)),
        Err(_) => spec_error("write shm:UNIT with a unit from 0 to 255, as in shm:0"),
    }
}

fn parse_sock(
    argument: Option<&str>,
    options: &mut SpecOptions<'_>,
) -> Result<SourceKind, SourceSpecError> {
    let path = parse_absolute_path(argument, "write sock:PATH, as in sock:/run/chrony.ttyS0.sock")?;
    Ok(SourceKind::Sock(path, parse_settings(*b"SOCK", options)?))
}

fn parse_gnss(
    argument: Option<&str>,
    options: &mut SpecOptions<'_>,
) -> Result<SourceKind, SourceSpecError> {
    let path = parse_absolute_path(argument, "write gnss:/dev/LINE, as in gnss:/dev/ttyS0")?;
    let speed = match options.take("baud").map(str::parse) {
        None => GNSS_SPEED,
        Some(Ok(speed)) if serial::is_supported_speed(speed) => speed,
        Some(_) => {
            let speeds = serial::speeds().map(|speed| speed.to_string()).join(", ");
            return spec_error(format!("baud takes one of {speeds}"));
        }
    };
    Ok(SourceKind::Gnss(path, speed, parse_settings(*b"GNSS", options)?))
}

pub(crate) fn parse_absolute_path(
    argument: Option<&str>,
    hint: &str,
) -> Result<PathBuf, SourceSpecError> {
    match argument.filter(|path| path.starts_with('/')) {
        Some(path) => Ok(path.into()),
        None => spec_error(hint),
    }
}

/// Parses the options that all reference clocks have in common.
fn parse_settings(
    identifier: [u8; 4],
    options: &mut SpecOptions<'_>,
) -> Result<ReferenceClockSettings, SourceSpecError> {
    let stratum = match options.take("stratum").map(str::parse) {
        None => 1,
        Some(Ok(stratum @ 1..=15)) => stratum,
        Some(_) => return spec_error("stratum takes 1 to 15"),
    };
    let reference_id = match options.take("refid").map(str::as_bytes) {
        None => identifier,
        Some(text) => {
            let mut id = [0; 4];
            match id.get_mut(..text.len()) {
                Some(room) if !text.is_empty() && text.iter().all(u8::is_ascii_graphic) => {
                    room.copy_from_slice(text);
                }
                _ => return spec_error("refid takes one to four printable ASCII characters"),
            }
            id
        }
    };
    let offset = options.take("offset").map_or(Ok(Span::ZERO), parse_span)?;
    let uncertainty = options.take("uncertainty").map_or(Ok(Span::ZERO), parse_span)?;
    if uncertainty < Span::ZERO {
        return spec_error("uncertainty cannot be negative");
    }
    Ok(ReferenceClockSettings { stratum, reference_id, offset, uncertainty })
}

/// Parses a span of at most 1e6 s in magnitude: more than the delay of any cable, antenna or
/// receiver.
pub(crate) fn parse_span(text: &str) -> Result<Span, SourceSpecError> {
    const MAX_NS: u64 = 1_000_000 * NS_PER_S.unsigned_abs();
    let span = text.parse::<Span>().ok().filter(|span| span.as_ns().unsigned_abs() <= MAX_NS);
    span.ok_or_else(|| {
        SourceSpecError(format!("'{text}' is not a time; write it as in 0.5 or -120ms"))
    })
}

fn parse_chronyd_address(text: &str) -> Result<ChronydAddress, SourceSpecError> {
    if text.starts_with('/') {
        return Ok(ChronydAddress::Unix(text.into()));
    }
    parse_address("chronyd", text).map(ChronydAddress::Udp)
}

fn parse_address(key: &str, text: &str) -> Result<SocketAddr, SourceSpecError> {
    zone::socket_address(text).or_else(|error| match error {
        AddressError::Syntax => spec_error(format!(
            "'{text}' is not an address; write {key}=ADDR:PORT, as in {key}=127.0.0.1:323"
        )),
        other => spec_error(format!("{key}={text}: {other}")),
    })
}

/// `KEY=VALUE` options of a specification, consumed one by one.
pub(crate) struct SpecOptions<'a>(Vec<(&'a str, &'a str)>);

impl<'a> SpecOptions<'a> {
    pub(crate) fn read(parts: impl Iterator<Item = &'a str>) -> Result<Self, SourceSpecError> {
        let mut pairs: Vec<(&str, &str)> = Vec::new();
        for part in parts {
            let Some((key, value)) = part.split_once('=') else {
                return spec_error(format!("'{part}' is not an option; write KEY=VALUE"));
            };
            if pairs.iter().any(|(known, _)| *known == key) {
                return spec_error(format!("{key} occurs twice"));
            }
            pairs.push((key, value));
        }
        Ok(Self(pairs))
    }

    pub(crate) fn take(&mut self, key: &str) -> Option<&'a str> {
        let position = self.0.iter().position(|(known, _)| *known == key)?;
        Some(self.0.remove(position).1)
    }

    pub(crate) fn finish(self, head: &str) -> Result<(), SourceSpecError> {
        match self.0.first() {
            None => Ok(()),
            Some((key, _)) => spec_error(format!("{head} has no option {key}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> SourceKind {
        text.parse::<SourceSpec>().unwrap().kind
    }

    #[test]
    fn the_daemon_of_the_system_source_can_be_chosen() {
        assert_eq!(kind("system"), SourceKind::System(DaemonChoice::Auto));
        assert_eq!(kind("system:kernel"), SourceKind::System(DaemonChoice::Kernel));
        let unix = ChronydAddress::Unix("/run/c.sock".into());
        assert_eq!(
            kind("system,chronyd=/run/c.sock"),
            SourceKind::System(DaemonChoice::Chronyd(unix))
        );
        let udp = ChronydAddress::Udp("[::1]:323".parse().unwrap());
        assert_eq!(
            kind("system,chronyd=[::1]:323"),
            SourceKind::System(DaemonChoice::Chronyd(udp))
        );
        let ntpd = DaemonChoice::Ntpd("10.0.0.1:123".parse().unwrap());
        assert_eq!(kind("system,ntpd=10.0.0.1:123"), SourceKind::System(ntpd));
    }

    #[test]
    fn reference_clocks_have_options() {
        let claim = |stratum, id: &[u8; 4], offset| ReferenceClockSettings {
            stratum,
            reference_id: *id,
            offset: Span::from_ns(offset),
            uncertainty: Span::ZERO,
        };
        assert_eq!(kind("shm:2"), SourceKind::Shm(2, claim(1, b"SHM\0", 0)));
        let gpsd = SourceKind::Gpsd(GPSD_ADDRESS.into(), claim(3, b"GNSS", -120_000_000));
        assert_eq!(kind("gpsd,stratum=3,refid=GNSS,offset=-120ms"), gpsd);
        assert_eq!(kind("sock:/a"), SourceKind::Sock("/a".into(), claim(1, b"SOCK", 0)));
        let gnss = SourceKind::Gnss("/dev/ttyS0".into(), 115_200, claim(1, b"GNSS", 0));
        assert_eq!(kind("gnss:/dev/ttyS0,baud=115200"), gnss);
        let scaled = |text| match kind(text) {
            SourceKind::Phc(_, scale, _) => scale,
            other => panic!("{other:?}"),
        };
        assert_eq!(scaled("phc:/dev/ptp0"), PhcSourceTimescale::Tai(None));
        assert_eq!(scaled("phc:/dev/ptp0,tai-offset=37"), PhcSourceTimescale::Tai(Some(37)));
        assert_eq!(scaled("phc:/dev/ptp0,scale=utc"), PhcSourceTimescale::Utc);
    }

    #[test]
    fn an_invalid_source_specification_is_explained_in_one_line() {
        for bad in [
            "",
            "sytem",
            "system:chrony",
            "system,chronyd",
            "system,chronyd=there",
            "system,chronyd=/a,ntpd=10.0.0.1:123",
            "system,stratum=1",
            "phc",
            "phc:ptp0",
            "phc:/dev/ptp0,scale=utc,tai-offset=37",
            "shm:256",
            "sock:here",
            "gpsd:here",
            "gnss",
            "gnss:ttyS0",
            "gnss:/dev/ttyS0,baud=1200000",
            "shm:0,stratum=16",
            "shm:0,refid=GNSS1",
            "shm:0,offset=1w",
            "shm:0,uncertainty=-1",
            "shm:0,offset=nan",
            "system,chronyd=/a,chronyd=/b",
        ] {
            let message = bad.parse::<SourceSpec>().unwrap_err().to_string();
            assert!(!message.is_empty() && !message.contains('\n'), "{bad}: {message}");
        }
    }
}

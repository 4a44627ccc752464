//! Text form of a pulse input: `KIND:DEVICE[,KEY=VALUE...]`, or the path of a PPS device alone.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use horolog_time::Span;

use super::devices::{ExternalTimestampPulseSource, GpioPulseSource, PpsPulseSource};
use super::{PulseConditioner, PulseEdgeKind, PulseSource};
use crate::spec::{SpecOptions, parse_absolute_path, parse_span, spec_error};
use crate::{SourceError, SourceSpecError};

/// Largest magnitude of a delay, above that of any cable or receiver.
const DELAY_MAX: Span = Span::from_ms(10);
const WIDTH_MAX: Span = Span::from_ms(900);

/// Specification of a pulse input, parsed but not opened.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PulseSpec {
    /// Text of the specification, used as its name in messages.
    pub text: String,
    /// Edge that marks the second.
    pub edge: PulseEdgeKind,
    /// Delay of antenna, cable and receiver.
    pub delay: Span,
    /// Expected pulse width; pulses of another width are skipped. `None` disables the check.
    pub width: Option<Span>,
    device: PulseDevice,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum PulseDevice {
    Pps(PathBuf),
    Gpio(PathBuf, u32),
    External { clock: PathBuf, channel: u32, pin: Option<u32> },
}

impl PulseSpec {
    /// Opens the device; the error names it, with a hint.
    pub fn open(&self) -> Result<Box<dyn PulseSource>, SourceError> {
        Ok(match &self.device {
            PulseDevice::Pps(path) => {
                Box::new(PpsPulseSource::open(path, self.edge, self.width.is_some())?)
            }
            PulseDevice::Gpio(path, line) => Box::new(GpioPulseSource::open(path, *line)?),
            PulseDevice::External { clock, channel, pin } => {
                Box::new(ExternalTimestampPulseSource::open(clock, *channel, *pin, self.edge)?)
            }
        })
    }

    /// Returns the converter of the device's edges to pulses.
    #[must_use]
    pub fn conditioner(&self) -> PulseConditioner {
        PulseConditioner::new(self.edge, self.delay, self.width)
    }

    /// Returns the path of the pulse device.
    #[must_use]
    pub fn path(&self) -> &Path {
        match &self.device {
            PulseDevice::Pps(path) | PulseDevice::Gpio(path, _) => path,
            PulseDevice::External { clock, .. } => clock,
        }
    }

    /// Checks the limits of delay and width, and that a PTP clock has no width; the error is the
    /// first violation.
    pub fn check(&self) -> Result<(), SourceSpecError> {
        if self.delay < -DELAY_MAX || self.delay > DELAY_MAX {
            return spec_error("a pulse delay is at most 10 ms in magnitude");
        }
        match (&self.device, self.width) {
            (PulseDevice::External { .. }, Some(_)) => spec_error(
                "a PTP clock captures one edge of a pulse, so its width cannot be checked",
            ),
            (_, Some(width)) if width <= Span::ZERO || width > WIDTH_MAX => {
                spec_error("a pulse width is above 0 and at most 900 ms")
            }
            _ => Ok(()),
        }
    }
}

impl FromStr for PulseSpec {
    type Err = SourceSpecError;

    fn from_str(text: &str) -> Result<Self, SourceSpecError> {
        let mut parts = text.split(',');
        let head = parts.next().unwrap_or_default();
        let (kind, argument) = match head.split_once(':') {
            Some((kind, argument)) => (kind, argument),
            None => ("pps", head),
        };
        let mut options = SpecOptions::read(parts)?;
        let path = |hint| parse_absolute_path(Some(argument), hint);
        let device = match kind {
            "pps" => {
                PulseDevice::Pps(path("write /dev/ppsN or pps:/dev/ppsN, as in pps:/dev/pps0")?)
            }
            "gpio" => {
                let hint = "write gpio:/dev/gpiochipN,line=N, as in gpio:/dev/gpiochip0,line=18";
                match number("line", &mut options)? {
                    Some(line) => PulseDevice::Gpio(path(hint)?, line),
                    None => return spec_error(hint),
                }
            }
            "extts" => PulseDevice::External {
                clock: path("write extts:/dev/ptpN, as in extts:/dev/ptp0,channel=0,pin=1")?,
                channel: number("channel", &mut options)?.unwrap_or(0),
                pin: number("pin", &mut options)?,
            },
            _ => return spec_error(format!("unknown pulse '{kind}'; choose pps, gpio or extts")),
        };
        let edge = match options.take("edge") {
            None | Some("assert") => PulseEdgeKind::Assert,
            Some("clear") => PulseEdgeKind::Clear,
            Some(_) => return spec_error("edge takes assert or clear"),
        };
        let delay = options.take("delay").map_or(Ok(Span::ZERO), parse_span)?;
        let width = options.take("width").map(parse_span).transpose()?;
        options.finish(head)?;
        let spec = Self { text: text.to_owned(), edge, delay, width, device };
        spec.check().map(|()| spec)
    }
}

fn number(key: &str, options: &mut SpecOptions<'_>) -> Result<Option<u32>, SourceSpecError> {
    match options.take(key).map(str::parse) {
        None => Ok(None),
        Some(Ok(number)) => Ok(Some(number)),
        Some(Err(_)) => spec_error(format!("{key} takes a number from 0")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(text: &str) -> PulseSpec {
        text.parse().unwrap()
    }

    #[test]
    fn devices_and_settings_are_read() {
        let plain = spec("/dev/pps0");
        assert_eq!(plain.device, PulseDevice::Pps("/dev/pps0".into()));
        assert_eq!(
            (plain.edge, plain.delay, plain.width),
            (PulseEdgeKind::Assert, Span::ZERO, None)
        );
        let clear = spec("pps:/dev/pps1,edge=clear,delay=150ns,width=100ms");
        let expected = (PulseEdgeKind::Clear, Span::from_ns(150), Some(Span::from_ms(100)));
        assert_eq!((clear.edge, clear.delay, clear.width), expected);
        let gpio = spec("gpio:/dev/gpiochip0,line=18");
        assert_eq!(gpio.device, PulseDevice::Gpio("/dev/gpiochip0".into(), 18));
        let clock = || "/dev/ptp0".into();
        let external = spec("extts:/dev/ptp0,channel=2,pin=1").device;
        assert_eq!(external, PulseDevice::External { clock: clock(), channel: 2, pin: Some(1) });
        let external = spec("extts:/dev/ptp0").device;
        assert_eq!(external, PulseDevice::External { clock: clock(), channel: 0, pin: None });
    }

    #[test]
    fn an_invalid_pulse_specification_is_explained_in_one_line() {
        for bad in [
            "",
            "pps0",
            "pps:pps0",
            "bell:/dev/pps0",
            "gpio:/dev/gpiochip0",
            "gpio:/dev/gpiochip0,line=-1",
            "extts:ptp0",
            "extts:/dev/ptp0,width=100ms",
            "/dev/pps0,edge=up",
            "/dev/pps0,delay=1s",
            "/dev/pps0,width=0",
            "/dev/pps0,width=1s",
            "/dev/pps0,line=1",
        ] {
            let message = bad.parse::<PulseSpec>().unwrap_err().to_string();
            assert!(!message.is_empty() && !message.contains('\n'), "{bad}: {message}");
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_named() {
        for text in ["/dev/pps77", "gpio:/dev/gpiochip77,line=1", "extts:/dev/ptp77"] {
            let spec = spec(text);
            let fault = spec.open().err().unwrap().to_string();
            assert!(fault.starts_with(&spec.path().display().to_string()), "{fault}");
        }
    }
}

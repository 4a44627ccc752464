//! Pulse device of the calibration thread, which is reopened after a failure.

use std::thread;
use std::time::{Duration, Instant};

use crate::{PulseEdge, PulseSource, PulseSpec, SourceError};

/// Time between two attempts to open a device that has failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);

type PulseSourceOpener = Box<dyn FnMut() -> Result<Box<dyn PulseSource>, SourceError> + Send>;

/// Open device, or the error and instant of the last attempt to open it.
pub(super) struct PulseInput {
    device: Result<Box<dyn PulseSource>, (SourceError, Instant)>,
    open: PulseSourceOpener,
    retry: Duration,
}

impl PulseInput {
    /// Opens the device. If `may_be_absent`, a failure to open it is no error, and opening is
    /// retried.
    pub(super) fn open(spec: &PulseSpec, may_be_absent: bool) -> Result<Self, SourceError> {
        let opener_spec = spec.clone();
        match Self::with_opener(Box::new(move || opener_spec.open()), RETRY_INTERVAL) {
            Err(fault) if may_be_absent => {
                let (device, opener_spec) = (Err((fault, Instant::now())), spec.clone());
                Ok(Self {
                    device,
                    open: Box::new(move || opener_spec.open()),
                    retry: RETRY_INTERVAL,
                })
            }
            opened => opened,
        }
    }

    fn with_opener(mut open: PulseSourceOpener, retry: Duration) -> Result<Self, SourceError> {
        Ok(Self { device: Ok(open()?), open, retry })
    }

    /// Waits up to `wait` for an edge; `None` if there was none. After a failure every call is an
    /// error until the device can be reopened.
    pub(super) fn wait(&mut self, wait: Duration) -> Result<Option<PulseEdge>, SourceError> {
        match &mut self.device {
            Ok(device) => match device.wait(wait) {
                Ok(edge) => return Ok(edge),
                Err(fault) => self.device = Err((fault, Instant::now())),
            },
            Err((_, failed_at)) if failed_at.elapsed() >= self.retry => {
                self.device = (self.open)().map_err(|fault| (fault, Instant::now()));
            }
            Err(_) => {}
        }
        // A failed device does not block, so this does.
        thread::sleep(wait);
        self.device.as_ref().map(|_| None).map_err(|(fault, _)| fault.clone())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use horolog_time::Timestamp;

    use super::*;
    use crate::PulseEdgeKind;
    use crate::pulse::replay::{PulseReplay, PulseReplayEvent};

    const MS: Duration = Duration::from_millis(1);

    fn edge(sequence: u32) -> PulseEdge {
        let (realtime, monotonic) = (Timestamp::from_ns(1), Timestamp::from_ns(1));
        PulseEdge { realtime, monotonic, sequence, edge: PulseEdgeKind::Assert }
    }

    #[test]
    fn a_device_that_was_unplugged_is_opened_again() {
        let gone = || Err::<PulseReplay, _>(SourceError::Unusable("it is not there".into()));
        let first = PulseReplay::new([PulseReplayEvent::Edge(edge(1)), PulseReplayEvent::Failure]);
        let second = PulseReplay::new([PulseReplayEvent::Edge(edge(2))]);
        let devices: Vec<Result<PulseReplay, SourceError>> =
            vec![Ok(first), gone(), gone(), Ok(second)];
        let devices = Arc::new(Mutex::new(devices.into_iter()));
        let left = Arc::clone(&devices);
        let open = move || -> Result<Box<dyn PulseSource>, SourceError> {
            let device = left.lock().unwrap().next().unwrap_or_else(gone)?;
            Ok(Box::new(device))
        };
        let mut input = PulseInput::with_opener(Box::new(open), MS).unwrap();
        assert_eq!(input.wait(MS), Ok(Some(edge(1))));
        let results: Vec<_> = (0..20).map(|_| input.wait(2 * MS)).collect();
        assert!(
            results[0].as_ref().is_err_and(|fault| fault.to_string().contains("device failed"))
        );
        assert!(results.contains(&Err(SourceError::Unusable("it is not there".into()))));
        assert!(results.contains(&Ok(Some(edge(2)))), "{results:?}");
    }

    #[test]
    fn it_is_not_opened_all_the_time_and_has_to_be_there_at_the_start() {
        let count = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&count);
        let open = move || -> Result<Box<dyn PulseSource>, SourceError> {
            *counted.lock().unwrap() += 1;
            Ok(Box::new(PulseReplay::new([PulseReplayEvent::Failure])))
        };
        let mut input = PulseInput::with_opener(Box::new(open), Duration::from_hours(1)).unwrap();
        (0..10).for_each(|_| assert!(input.wait(MS).is_err()));
        assert_eq!(*count.lock().unwrap(), 1);
        let none = || Err(SourceError::Unusable("it is not there".into()));
        assert!(PulseInput::with_opener(Box::new(none), RETRY_INTERVAL).is_err());
    }
}

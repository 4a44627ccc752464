//! TAI minus UTC across the leap seconds that pass while a server runs. A configured value is wrong
//! after the next leap second, so a change must show in the kernel's value; if the server has
//! passed a leap second that the kernel does not show, TAI minus UTC is unknown.

use crate::{ClockReadings, SourceError};

/// Checker of TAI minus UTC, by configuration or kernel, against the leap seconds that pass.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaiOffsetChecker {
    /// Configured value, valid at the start; `None` if the kernel's is used.
    initial_s: Option<i32>,
    /// First value of the kernel, `None` before it is read. 0 means that it was not set; the kernel
    /// still counts leap seconds.
    first_kernel_s: Option<i32>,
}

impl TaiOffsetChecker {
    pub(crate) const fn new(configured_s: Option<i32>) -> Self {
        Self { initial_s: configured_s, first_kernel_s: None }
    }

    /// Returns the present TAI minus UTC, in seconds; an error if the kernel's value is needed and
    /// not set, or does not show a leap second that the server has passed.
    pub(crate) fn offset_s(&mut self, readings: &ClockReadings) -> Result<i32, SourceError> {
        let kernel_s = readings.kernel.map(|kernel| kernel.tai_offset_s);
        match self.initial_s {
            Some(configured_s) => {
                self.offset_from_configured(configured_s, kernel_s, readings.leaps_s)
            }
            None => self.offset_from_kernel(kernel_s.unwrap_or(0), readings.leaps_s),
        }
    }

    fn offset_from_configured(
        &mut self,
        configured_s: i32,
        kernel_s: Option<i32>,
        leaps_s: i32,
    ) -> Result<i32, SourceError> {
        let Some(kernel_s) = kernel_s else {
            return if leaps_s == 0 { Ok(configured_s) } else { Err(unknown_error()) };
        };
        let first_s = *self.first_kernel_s.get_or_insert(kernel_s);
        if leaps_s == 0 && (kernel_s == configured_s || kernel_s == first_s) {
            return Ok(configured_s);
        }
        let change_s = kernel_s - first_s;
        if [configured_s, 0].contains(&first_s) && is_change_plausible(change_s, leaps_s) {
            return Ok(configured_s + change_s);
        }
        Err(unknown_error())
    }

    fn offset_from_kernel(&mut self, kernel_s: i32, leaps_s: i32) -> Result<i32, SourceError> {
        if kernel_s == 0 {
            return Err(SourceError::Unusable(
                "the kernel's TAI offset is unset; add tai-offset=37, or scale=utc".into(),
            ));
        }
        let first_s = *self.first_kernel_s.get_or_insert(kernel_s);
        if leaps_s == 0 || is_change_plausible(kernel_s - first_s, leaps_s) {
            return Ok(kernel_s);
        }
        Err(unknown_error())
    }
}

/// Returns true if a change of the kernel's value matches the leap seconds passed by the server;
/// the kernel may be one ahead, because it counts them first.
fn is_change_plausible(change_s: i32, leaps_s: i32) -> bool {
    (change_s - leaps_s).abs() <= 1 && change_s.abs() >= leaps_s.abs()
}

/// Returns a `NoData` error, so that the last estimate remains valid for as long as the kernel may
/// take to count the leap second.
fn unknown_error() -> SourceError {
    SourceError::NoData(
        "a leap second has passed that the kernel's TAI offset does not include; restart with the \
         new tai-offset"
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::tests::{kernel, readings};

    /// Returns the number after each of these: the kernel's number, and the leaps passed.
    fn holds(configured_s: Option<i32>, series: &[(i32, i32)]) -> Vec<Option<i32>> {
        let mut offset = TaiOffsetChecker::new(configured_s);
        let at = |&(tai_offset_s, leaps_s)| {
            offset
                .offset_s(&ClockReadings {
                    kernel: Some(kernel(tai_offset_s)),
                    leaps_s,
                    ..readings(0)
                })
                .ok()
        };
        series.iter().map(at).collect()
    }

    #[test]
    fn a_leap_that_the_kernel_makes_is_followed() {
        let series = [(37, 0), (38, 0), (38, 1), (39, 1), (39, 2)];
        let expected = [37, 38, 38, 39, 39].map(Some);
        assert_eq!(holds(Some(37), &series), expected);
        assert_eq!(holds(None, &series), expected);
        assert_eq!(holds(Some(37), &[(0, 0), (1, 0), (1, 1)]), [37, 38, 38].map(Some));
        assert_eq!(holds(Some(37), &[(37, 0), (36, 0), (36, -1)]), [37, 36, 36].map(Some));
    }

    #[test]
    fn after_a_leap_that_the_kernel_does_not_show_there_is_none_until_it_does() {
        let series = [(37, 0), (37, 1), (37, 1), (38, 1)];
        let expected = [Some(37), None, None, Some(38)];
        assert_eq!(holds(Some(37), &series), expected);
        assert_eq!(holds(None, &series), expected);
        assert_eq!(holds(Some(37), &[(0, 0), (0, 1)]), [Some(37), None]);
        assert_eq!(holds(Some(37), &[(37, 0), (36, 1)]), [Some(37), None], "the other way");
    }

    #[test]
    fn a_number_that_a_daemon_sets_is_no_leap() {
        assert_eq!(holds(Some(37), &[(0, 0), (37, 0)]), [37, 37].map(Some));
        assert_eq!(holds(Some(37), &[(36, 0), (37, 0)]), [37, 37].map(Some));
        assert_eq!(holds(Some(37), &[(0, 0), (38, 0)]), [Some(37), None], "nobody knows");
        assert_eq!(holds(None, &[(0, 0), (37, 0)]), [None, Some(37)]);
    }
}

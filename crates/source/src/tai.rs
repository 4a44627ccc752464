//! TAI minus UTC over the leap seconds that pass while a server runs. A configured number is wrong
//! by a second after the next leap, so a change must appear in the kernel's number, and if the
//! server has passed a leap that this does not show, there is none.

use crate::{ClockReadings, SourceError};

/// TAI minus UTC with its origin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaiOffset {
    /// Configured number, which held at the start.
    configured_s: Option<i32>,
    /// First number of the kernel; 0 means that it has none, and it counts leaps all the same.
    first_s: Option<i32>,
}

impl TaiOffset {
    pub(crate) const fn new(configured_s: Option<i32>) -> Self {
        Self { configured_s, first_s: None }
    }

    /// Returns the present number, in seconds.
    pub(crate) fn at(&mut self, readings: &ClockReadings) -> Result<i32, SourceError> {
        let kernel_s = readings.kernel.map(|kernel| kernel.tai_offset_s);
        match self.configured_s {
            Some(configured_s) => self.after(configured_s, kernel_s, readings.leaps_s),
            None => self.of_kernel(kernel_s.unwrap_or(0), readings.leaps_s),
        }
    }

    fn after(
        &mut self,
        configured_s: i32,
        kernel_s: Option<i32>,
        leaps_s: i32,
    ) -> Result<i32, SourceError> {
        let Some(kernel_s) = kernel_s else {
            return if leaps_s == 0 { Ok(configured_s) } else { Err(unknown()) };
        };
        let first_s = *self.first_s.get_or_insert(kernel_s);
        if leaps_s == 0 && (kernel_s == configured_s || kernel_s == first_s) {
            return Ok(configured_s);
        }
        let moved_s = kernel_s - first_s;
        if [configured_s, 0].contains(&first_s) && shows(moved_s, leaps_s) {
            return Ok(configured_s + moved_s);
        }
        Err(unknown())
    }

    fn of_kernel(&mut self, kernel_s: i32, leaps_s: i32) -> Result<i32, SourceError> {
        if kernel_s == 0 {
            return Err(SourceError::Unusable(
                "the kernel's TAI offset is unset; add tai-offset=37, or scale=utc".into(),
            ));
        }
        let first_s = *self.first_s.get_or_insert(kernel_s);
        if leaps_s == 0 || shows(kernel_s - first_s, leaps_s) {
            return Ok(kernel_s);
        }
        Err(unknown())
    }
}

/// Returns true if a change of the kernel's number matches the leaps that were passed; the kernel
/// may be one ahead, for it is the first to count it.
fn shows(moved_s: i32, leaps_s: i32) -> bool {
    (moved_s - leaps_s).abs() <= 1 && moved_s.abs() >= leaps_s.abs()
}

/// Returns a missing report and no refusal: the report before the leap holds for as long as the
/// kernel may take.
fn unknown() -> SourceError {
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
        let mut offset = TaiOffset::new(configured_s);
        let at = |&(tai_offset_s, leaps_s)| {
            offset
                .at(&ClockReadings { kernel: Some(kernel(tai_offset_s)), leaps_s, ..readings(0) })
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

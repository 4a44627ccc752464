//! TAI minus UTC over the leap seconds that pass while a server runs. Who was told a number at the
//! start is wrong by a second after the next leap, so a change has to be seen in the kernel's
//! number, and where the server has passed a leap that this does not show, there is none.

use crate::{Fault, Look};

/// How far TAI is ahead of UTC.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaiOffset {
    /// The number that was told, which held at the start.
    told_s: Option<i32>,
    /// The first of the kernel's numbers; it knows none while it says 0, and counts leaps all the
    /// same.
    first_s: Option<i32>,
}

impl TaiOffset {
    pub(crate) const fn new(told_s: Option<i32>) -> Self {
        Self { told_s, first_s: None }
    }

    /// The number that holds now, in seconds.
    pub(crate) fn at(&mut self, look: &Look) -> Result<i32, Fault> {
        let kernel_s = look.kernel.map(|kernel| kernel.tai_offset_s);
        match self.told_s {
            Some(told_s) => self.after(told_s, kernel_s, look.leaps_s),
            None => self.of_kernel(kernel_s.unwrap_or(0), look.leaps_s),
        }
    }

    fn after(&mut self, told_s: i32, kernel_s: Option<i32>, leaps_s: i32) -> Result<i32, Fault> {
        let Some(kernel_s) = kernel_s else {
            return if leaps_s == 0 { Ok(told_s) } else { Err(unknown()) };
        };
        let first_s = *self.first_s.get_or_insert(kernel_s);
        if leaps_s == 0 && (kernel_s == told_s || kernel_s == first_s) {
            return Ok(told_s);
        }
        let moved_s = kernel_s - first_s;
        if [told_s, 0].contains(&first_s) && shows(moved_s, leaps_s) {
            return Ok(told_s + moved_s);
        }
        Err(unknown())
    }

    fn of_kernel(&mut self, kernel_s: i32, leaps_s: i32) -> Result<i32, Fault> {
        if kernel_s == 0 {
            return Err(Fault::Unusable(
                "the kernel does not know TAI minus UTC; give it with tai-offset=37, or say \
                 scale=utc"
                    .into(),
            ));
        }
        let first_s = *self.first_s.get_or_insert(kernel_s);
        if leaps_s == 0 || shows(kernel_s - first_s, leaps_s) {
            return Ok(kernel_s);
        }
        Err(unknown())
    }
}

/// Whether a change of the kernel's number shows the leaps that were passed; the kernel may be one
/// ahead, for it is the first to know.
fn shows(moved_s: i32, leaps_s: i32) -> bool {
    (moved_s - leaps_s).abs() <= 1 && moved_s.abs() >= leaps_s.abs()
}

/// Silence and no refusal: what was said before the leap holds for as long as it may take the
/// kernel to do it.
fn unknown() -> Fault {
    Fault::Silent(
        "a leap second has passed that the kernel's TAI minus UTC does not show; restart with the \
         new tai-offset"
            .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::tests::{kernel, look};

    /// What holds after each of these: the kernel's number, and the leaps passed.
    fn holds(told_s: Option<i32>, course: &[(i32, i32)]) -> Vec<Option<i32>> {
        let mut offset = TaiOffset::new(told_s);
        let at = |&(tai_offset_s, leaps_s)| {
            offset.at(&Look { kernel: Some(kernel(tai_offset_s)), leaps_s, ..look(0) }).ok()
        };
        course.iter().map(at).collect()
    }

    #[test]
    fn a_leap_that_the_kernel_makes_is_followed() {
        let course = [(37, 0), (38, 0), (38, 1), (39, 1), (39, 2)];
        let expected = [37, 38, 38, 39, 39].map(Some);
        assert_eq!(holds(Some(37), &course), expected);
        assert_eq!(holds(None, &course), expected);
        assert_eq!(holds(Some(37), &[(0, 0), (1, 0), (1, 1)]), [37, 38, 38].map(Some));
        assert_eq!(holds(Some(37), &[(37, 0), (36, 0), (36, -1)]), [37, 36, 36].map(Some));
    }

    #[test]
    fn after_a_leap_that_the_kernel_does_not_show_there_is_none_until_it_does() {
        let course = [(37, 0), (37, 1), (37, 1), (38, 1)];
        let expected = [Some(37), None, None, Some(38)];
        assert_eq!(holds(Some(37), &course), expected);
        assert_eq!(holds(None, &course), expected);
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

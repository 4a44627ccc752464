//! Which looks at an agent's order are news. A server of a cluster may not have followed the others
//! yet, and shows what was before; a broker that came back empty shows less than before as well,
//! and goes on doing so. Pure.

/// Looks at less than was seen before it is believed: some seconds.
const DOUBTS_MAX: u32 = 4;

/// What was seen.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Sight {
    revision: Option<u64>,
    doubts: u32,
}

impl Sight {
    /// Whether it is news that the broker has this revision, or none. One that says that an order
    /// was taken back is a later revision too.
    pub(super) fn is_news(&mut self, revision: Option<u64>) -> bool {
        if revision == self.revision {
            self.doubts = 0;
            return false;
        }
        if revision < self.revision {
            self.doubts += 1;
            if self.doubts < DOUBTS_MAX {
                return false;
            }
        }
        *self = Self { revision, doubts: 0 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(looks: &[Option<u64>]) -> Vec<bool> {
        let mut sight = Sight::default();
        looks.iter().map(|revision| sight.is_news(*revision)).collect()
    }

    #[test]
    fn each_revision_is_news_once() {
        let looks = [None, Some(3), Some(3), Some(5), Some(5)];
        assert_eq!(news(&looks), [false, true, false, true, false]);
    }

    #[test]
    fn a_server_that_has_not_followed_takes_no_order_back() {
        let looks = [Some(3), None, Some(2), Some(3), None, None, Some(3)];
        assert_eq!(news(&looks), [true, false, false, false, false, false, false]);
    }

    #[test]
    fn a_broker_that_came_back_empty_is_believed_in_the_end() {
        let looks = [Some(3), None, None, None, None, None, Some(1)];
        assert_eq!(news(&looks), [true, false, false, false, true, false, true]);
    }
}

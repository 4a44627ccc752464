//! Detection of new revisions of an agent's assignment. A server of a cluster may lag behind the
//! others and return an older revision; a broker that restarted without its data also returns an
//! older revision, and continues to do so. Pure.

/// Number of reads of older revisions, without one of the accepted revision in between, after which
/// the older revision is accepted: some seconds, since the interval of reads is at most 2 s.
const CONFLICTING_READS_MAX: u32 = 4;

/// Last accepted revision of the assignment, and the number of older ones read since.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct RevisionTracker {
    revision: Option<u64>,
    conflicting_reads: u32,
}

impl RevisionTracker {
    /// Records a read of `revision` (`None`: no value is stored). Returns true if the revision
    /// replaces the accepted one. The deletion of an order is a later revision too.
    pub(super) fn is_new(&mut self, revision: Option<u64>) -> bool {
        if revision == self.revision {
            self.conflicting_reads = 0;
            return false;
        }
        if revision < self.revision {
            self.conflicting_reads += 1;
            if self.conflicting_reads < CONFLICTING_READS_MAX {
                return false;
            }
        }
        *self = Self { revision, conflicting_reads: 0 };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn classify_reads(reads: &[Option<u64>]) -> Vec<bool> {
        let mut tracker = RevisionTracker::default();
        reads.iter().map(|revision| tracker.is_new(*revision)).collect()
    }

    #[test]
    fn each_revision_is_new_once() {
        let reads = [None, Some(3), Some(3), Some(5), Some(5)];
        assert_eq!(classify_reads(&reads), [false, true, false, true, false]);
    }

    #[test]
    fn a_server_that_has_not_followed_takes_no_order_back() {
        let reads = [Some(3), None, Some(2), Some(3), None, None, Some(3)];
        assert_eq!(classify_reads(&reads), [true, false, false, false, false, false, false]);
    }

    #[test]
    fn an_emptied_broker_is_accepted_after_repeated_reads() {
        let reads = [Some(3), None, None, None, None, None, Some(1)];
        assert_eq!(classify_reads(&reads), [true, false, false, false, true, false, true]);
    }
}

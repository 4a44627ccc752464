//! Requests and replies of each client (8 bytes per client), and the fairness of the replies. Does
//! no I/O.

use horolog_record::ClientFairness;

use crate::clients::LaneClients;

/// Numbers of requests and replies of one client.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ClientReplyCounts {
    /// Number of requests of the client.
    pub requests: u32,
    /// Requests with a valid reply in time.
    pub answered: u32,
}

/// Counts of the clients of a lane.
#[derive(Debug)]
pub struct PerClientCounts {
    first: u32,
    clients: Vec<ClientReplyCounts>,
}

impl PerClientCounts {
    /// Creates zero counts for all clients of a lane.
    #[must_use]
    pub fn new(clients: &LaneClients) -> Self {
        let counts = vec![ClientReplyCounts::default(); clients.client_count() as usize];
        Self { first: clients.first_client(), clients: counts }
    }

    /// Counts a request of a client.
    #[inline]
    pub fn count_request(&mut self, client: u32) {
        if let Some(counts) = self.clients.get_mut(client.wrapping_sub(self.first) as usize) {
            counts.requests = counts.requests.saturating_add(1);
        }
    }

    /// Counts a valid reply in time to a client.
    #[inline]
    pub fn count_reply(&mut self, client: u32) {
        if let Some(counts) = self.clients.get_mut(client.wrapping_sub(self.first) as usize) {
            counts.answered = counts.answered.saturating_add(1);
        }
    }

    /// Returns the counts of each client, in the order of their numbers.
    #[must_use]
    pub fn close(self) -> Vec<ClientReplyCounts> {
        self.clients
    }
}

/// Returns the fairness of the replies to the clients that sent requests: number of clients and of
/// those without a reply, minimum, median and maximum reply ratio, and Jain's index (`None` without
/// replies). `None` if no client sent a request.
#[must_use]
pub fn client_fairness(clients: &[ClientReplyCounts]) -> Option<ClientFairness> {
    let active = clients.iter().filter(|client| client.requests > 0);
    let share =
        |client: &ClientReplyCounts| f64::from(client.answered) / f64::from(client.requests);
    let mut shares: Vec<f64> = active.map(share).collect();
    shares.sort_unstable_by(f64::total_cmp);
    let (first, last) = (*shares.first()?, *shares.last()?);
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    let count = shares.len();
    Some(ClientFairness {
        clients: count as u64,
        unanswered: shares.iter().take_while(|share| **share <= 0.0).count() as u64,
        share_min: first,
        share_median: f64::midpoint(shares[(count - 1) / 2], shares[count / 2]),
        share_max: last,
        jain_index: (squares > 0.0).then(|| (sum * sum / (count as f64 * squares)).min(1.0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fairness(clients: &[(u32, u32)]) -> Option<ClientFairness> {
        let counts =
            clients.iter().map(|&(requests, answered)| ClientReplyCounts { requests, answered });
        client_fairness(&counts.collect::<Vec<_>>())
    }

    #[test]
    fn all_alike_is_one_and_one_for_all_is_the_inverse_of_their_number() {
        let even = fairness(&[(10, 5), (4, 2), (2, 1), (0, 0)]).unwrap();
        assert_eq!((even.clients, even.unanswered, even.jain_index), (3, 0, Some(1.0)));
        let one = fairness(&[(10, 0), (10, 10), (10, 0), (10, 0)]).unwrap();
        assert_eq!((one.clients, one.unanswered, one.jain_index), (4, 3, Some(0.25)));
        assert_eq!((one.share_min, one.share_median, one.share_max), (0.0, 0.0, 1.0));
        let unanswered = fairness(&[(10, 0)]).unwrap();
        assert_eq!((unanswered.unanswered, unanswered.jain_index), (1, None));
        assert_eq!(fairness(&[(0, 0)]), None);
    }

    #[test]
    fn a_lane_counts_its_own_clients() {
        let mut counts = PerClientCounts::new(&LaneClients::in_turn(10, 1, 2, 1));
        for client in [5, 5, 9, 4, 10] {
            counts.count_request(client);
        }
        counts.count_reply(9);
        let closed = counts.close();
        assert_eq!(closed.len(), 5);
        assert_eq!((closed[0].requests, closed[4].requests, closed[4].answered), (2, 1, 1));
    }

    proptest! {
        #[test]
        fn figures_lie_where_they_can(
            clients in prop::collection::vec((1u32..100, 0u32..100), 1..200)
        ) {
            let clients: Vec<_> = clients.iter().map(|&(a, b)| (a.max(b), b)).collect();
            let found = fairness(&clients).unwrap();
            prop_assert!(found.share_min <= found.share_median);
            prop_assert!(found.share_median <= found.share_max && found.share_max <= 1.0);
            let least = 1.0 / clients.len() as f64;
            prop_assert!(found.jain_index.is_none_or(|jain| (least * 0.999..=1.0).contains(&jain)));
            prop_assert_eq!(found.unanswered > 0, found.share_min <= 0.0);
        }
    }
}

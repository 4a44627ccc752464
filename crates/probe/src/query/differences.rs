//! Time differences between servers, from exchanges in the same slots. The local clock cancels out,
//! so it need not be correct. Pure.

use horolog_record::{ExchangeSample, ServerOffsetDifference};

use super::exchange::drift_max_ns;
use super::figures::has_impossible_delay;

/// Exchanges with a server, and its stated error bound in ns (root dispersion plus half the root
/// delay); `None` if it is not synchronised.
pub(crate) type SamplesWithErrorBound<'a> = (&'a [ExchangeSample], Option<u64>);

/// Returns the difference of each pair of servers with exchanges in common slots.
pub(crate) fn differences(servers: &[SamplesWithErrorBound<'_>]) -> Vec<ServerOffsetDifference> {
    let pairs = (0..servers.len()).flat_map(|a| (a + 1..servers.len()).map(move |b| (a, b)));
    pairs.filter_map(|(a, b)| difference([a, b], servers[a], servers[b])).collect()
}

fn difference(
    [first, second]: [usize; 2],
    a: SamplesWithErrorBound<'_>,
    b: SamplesWithErrorBound<'_>,
) -> Option<ServerOffsetDifference> {
    let pairs = common_slots(a.0, b.0);
    let stated_error_ns = a.1.zip(b.1).map(|(a, b)| a.saturating_add(b));
    let offset_difference =
        |(a, b): &(&ExchangeSample, &ExchangeSample)| a.offset_ns.saturating_sub(b.offset_ns);
    let best = pairs.iter().min_by_key(|(a, b)| error_bound_sum_ns(a, b))?;
    let (offset_ns, bound) = (offset_difference(best), error_bound_sum_ns(best.0, best.1));
    let mean_ns =
        pairs.iter().map(|pair| offset_difference(pair) as f64).sum::<f64>() / pairs.len() as f64;
    Some(ServerOffsetDifference {
        first,
        second,
        pairs: pairs.len() as u64,
        offset_ns,
        bound_ns: bound,
        mean_ns,
        contradiction: stated_error_ns
            .is_some_and(|stated| offset_ns.unsigned_abs() > bound.saturating_add(stated)),
    })
}

/// Returns the error bound of a difference in ns: the sum of both bounds and of the local clock's
/// possible drift between the exchanges.
fn error_bound_sum_ns(a: &ExchangeSample, b: &ExchangeSample) -> u64 {
    let between = drift_max_ns(a.t1_ns.abs_diff(b.t1_ns));
    a.error_bound_ns().saturating_add(b.error_bound_ns()).saturating_add(between)
}

/// Returns the pairs of exchanges in common slots; both lists are sorted by slot. Exchanges with an
/// impossible delay are left out, because their error is unknown.
fn common_slots<'a>(
    a: &'a [ExchangeSample],
    b: &'a [ExchangeSample],
) -> Vec<(&'a ExchangeSample, &'a ExchangeSample)> {
    let mut rest = b.iter().filter(|sample| !has_impossible_delay(sample)).peekable();
    a.iter()
        .filter(|sample| !has_impossible_delay(sample))
        .filter_map(|one| {
            while rest.next_if(|other| other.sequence < one.sequence).is_some() {}
            rest.next_if(|other| other.sequence == one.sequence).map(|other| (one, other))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::figures::tests::sample;
    use super::*;

    /// Of servers that state no error of their own.
    fn exact(servers: &[&[ExchangeSample]]) -> Vec<ServerOffsetDifference> {
        let servers: Vec<_> = servers.iter().map(|samples| (*samples, Some(0))).collect();
        differences(&servers)
    }

    #[test]
    fn the_tightest_pair_determines_the_difference() {
        let a = [sample(0, 1_000, 400), sample(1, 1_010, 100), sample(3, 990, 100)];
        let b = [sample(1, 250, 100), sample(2, 0, 10), sample(3, 260, 300)];
        let found = exact(&[&a, &b]);
        assert_eq!(found.len(), 1);
        let found = found[0];
        assert_eq!((found.first, found.second, found.pairs), (0, 1, 2));
        // Two halves of 100 ns and twice 10 ns of dispersion.
        assert_eq!((found.offset_ns, found.bound_ns), (760, 120));
        assert!((found.mean_ns - 745.0).abs() < 1e-9);
        assert!(found.contradiction, "both cannot be right");
    }

    #[test]
    fn what_the_bounds_allow_is_no_contradiction() {
        let (a, b) = ([sample(0, 100, 200)], [sample(0, 0, 200)]);
        assert!(!exact(&[&a, &b])[0].contradiction);
        assert!(exact(&[&a, &[]]).is_empty());
        assert_eq!(exact(&[&a, &b, &a]).len(), 3);
    }

    #[test]
    fn a_server_is_held_to_what_it_states_of_its_time() {
        let (a, b) = ([sample(0, 1_000, 100)], [sample(0, 0, 100)]);
        let contradict = |of_a, of_b| differences(&[(&a, of_a), (&b, of_b)])[0].contradiction;
        assert!(contradict(Some(440), Some(439)), "120 ns of the exchanges");
        assert!(!contradict(Some(440), Some(440)));
        assert!(!contradict(Some(u64::MAX), Some(1)));
        assert!(!contradict(None, Some(0)) && !contradict(Some(0), None), "not synchronised");
    }

    #[test]
    fn a_negative_delay_contradicts_nothing() {
        let impossible = sample(1, 5_000_000, -1_000_000);
        let a = [sample(0, 100, 200), impossible];
        let b = [sample(0, 0, 200), sample(1, 0, 200)];
        let found = exact(&[&a, &b])[0];
        assert_eq!((found.pairs, found.contradiction), (1, false));
        assert!(exact(&[&[impossible], &b[1..]]).is_empty());
    }

    #[test]
    fn the_time_between_two_exchanges_widens_the_bound() {
        let (a, mut b) = (sample(0, 0, 100), sample(0, 0, 100));
        b.t1_ns += 10_000_000;
        // 15 ppm of 10 ms.
        assert_eq!(error_bound_sum_ns(&a, &b), 60 + 60 + 150);
        b.t1_ns = a.t1_ns + 999_999;
        assert_eq!(error_bound_sum_ns(&a, &b), 60 + 60 + 15, "rounded up");
    }
}

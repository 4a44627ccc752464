//! Results by client as text: fairness of the replies, and losses of compliant clients.

use horolog_record::{ClientFairness, CompliantClientsResult, LoadResult};

use crate::units::{ABSENT, full_count, human_ns, percent, percent_of};

/// Returns a line for the trial with the least even replies, and one for that with the highest
/// compliant loss; none for uncounted quantities.
pub(super) fn lines(result: &LoadResult) -> Vec<String> {
    let trials = || result.trials.iter().enumerate();
    let fairness = trials().filter_map(|(index, trial)| Some((index, trial.fairness.as_ref()?)));
    let least = fairness.min_by(|(_, a), (_, b)| index_of(a).total_cmp(&index_of(b)));
    let well =
        trials().filter_map(|(index, trial)| Some((index, trial.compliant_clients.as_ref()?)));
    let worst = well.max_by(|(_, a), (_, b)| a.loss_ratio().total_cmp(&b.loss_ratio()));
    let several = result.trials.len() > 1;
    let of = |index: usize| {
        if several { format!(" (trial {}, worst)", index + 1) } else { String::new() }
    };
    let even = least.map(|(index, fairness)| format!("Clients{}: {}", of(index), even(fairness)));
    let compliant_loss = worst.map(|(index, one)| {
        format!("Compliant clients{}: {}", of(index), compliant_loss_sentence(one))
    });
    even.into_iter().chain(compliant_loss).collect()
}

fn index_of(fairness: &ClientFairness) -> f64 {
    fairness.jain_index.unwrap_or(0.0)
}

fn even(fairness: &ClientFairness) -> String {
    let [least, median, most] =
        [fairness.share_min, fairness.share_median, fairness.share_max].map(percent);
    let jain = fairness.jain_index.map_or_else(|| ABSENT.to_owned(), |jain| format!("{jain:.4}"));
    format!(
        "of {} active, {} got no reply; answered share per client: min {least}, median {median}, \
         max {most}; Jain's fairness index {jain}.",
        full_count(fairness.clients),
        full_count(fairness.unanswered),
    )
}

fn compliant_loss_sentence(one: &CompliantClientsResult) -> String {
    let p99 = one.rtt_ns.as_ref().map_or_else(|| ABSENT.to_owned(), |rtt| human_ns(rtt.p99));
    format!(
        "{} of {} requests lost ({}), by {} of {} clients; round trip p99 {p99}.",
        full_count(one.lost),
        full_count(one.sent),
        percent_of(one.lost, one.sent),
        full_count(one.clients_affected),
        full_count(one.clients_active),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    #[test]
    fn the_worst_trial_is_reported() {
        let mut result = fixture::load();
        assert!(lines(&result).is_empty());
        let even = |jain_index, unanswered| ClientFairness {
            clients: 1000,
            unanswered,
            share_min: 0.0,
            share_median: 0.5,
            share_max: 1.0,
            jain_index,
        };
        result.trials[0].fairness = Some(even(Some(0.99), 1));
        result.trials[3].fairness = Some(even(Some(0.5), 400));
        result.trials[4].compliant_clients = Some(CompliantClientsResult {
            clients: 100,
            interval_s: 16.0,
            burst: 1,
            sent: 200,
            received: 150,
            lost: 50,
            invalid: 0,
            clients_active: 90,
            clients_affected: 40,
            rtt_ns: None,
        });
        let lines = lines(&result);
        assert!(lines[0].starts_with("Clients (trial 4, worst): of 1,000 active, 400 got no"));
        assert!(lines[0].ends_with("Jain's fairness index 0.5000."), "{}", lines[0]);
        assert!(lines[1].contains("50 of 200 requests lost (25.00%), by 40 of 90"), "{}", lines[1]);
    }
}

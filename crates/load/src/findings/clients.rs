//! The doubts that single clients give rise to: some that got nothing, and well-behaved ones that a
//! server's limits hurt.

use horolog_record::{Code, Finding, Severity, WellBehaved};

use super::{Observed, about_worst};

/// The share of clients without a reply from which on it is told of.
const UNANSWERED_MIN: f64 = 0.001;

/// The loss of well-behaved clients that may be chance.
const HURT_MIN: f64 = 0.001;

/// Clients that got nothing while others did.
pub(super) fn uneven(trials: &[Observed<'_>]) -> Option<Finding> {
    let unanswered = |observed: &Observed<'_>| {
        let Some(fairness) = &observed.trial.fairness else { return 0.0 };
        let share = fairness.unanswered as f64 / fairness.clients.max(1) as f64;
        if fairness.share_max > 0.0 && share >= UNANSWERED_MIN { share } else { 0.0 }
    };
    about_worst(
        trials,
        unanswered,
        (Code::UnevenReplies, Severity::Note),
        |observed| {
            let share = unanswered(observed) * 100.0;
            let best = observed.trial.fairness.as_ref().map_or(0.0, |one| one.share_max) * 100.0;
            format!(
                "{share:.1}% of the clients got no reply at all, while the best had {best:.1}% of \
                 its requests answered"
            )
        },
        "a server that limits clients or spreads them over threads treats them unlike; with few \
         requests for each client it is chance",
    )
}

/// Well-behaved clients that went without a reply.
pub(super) fn hurt(trials: &[Observed<'_>]) -> Option<Finding> {
    let hurt = |observed: &Observed<'_>| {
        let ratio = observed.trial.well_behaved.as_ref().map_or(0.0, WellBehaved::loss_ratio);
        if ratio >= HURT_MIN { ratio } else { 0.0 }
    };
    about_worst(
        trials,
        hurt,
        (Code::ClientsHurt, Severity::Warning),
        |observed| {
            let (lost, sent, clients, asking) =
                observed.trial.well_behaved.as_ref().map_or((0, 0, 0, 0), |one| {
                    (one.lost, one.sent, one.clients_hurt, one.clients_asking)
                });
            let others = observed.trial.loss_ratio() * 100.0;
            format!(
                "well-behaved clients lost {lost} of {sent} requests, {clients} of {asking} clients \
                 at least one, beside a load that lost {others:.1}%"
            )
        },
        "the server's limits, or its lack of them, cost clients that ask as they should; limit \
         single addresses rather than all together, and leave room for newcomers",
    )
}

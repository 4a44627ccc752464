//! Search of agents for roles, with backtracking: each role needs a number of different suitable
//! agents, and some roles must not share an agent. Agents with few instances are tried first. A
//! search that takes more than [`STEPS_MAX`] steps ends without a result.

/// Largest number of steps of a search; each tries one agent for one instance.
const STEPS_MAX: u32 = 200_000;

/// Demand of a role for agents, which are identified by index.
#[derive(Clone, Debug)]
pub(super) struct RoleDemand {
    /// Number of agents.
    pub(super) count: usize,
    /// Agents that are suitable.
    pub(super) suitable_agents: Vec<usize>,
    /// Indices of other demands whose agents it must not share.
    pub(super) apart_from: Vec<usize>,
}

struct PlacementSearch<'a> {
    demands: &'a [RoleDemand],
    /// Demands in the order in which they are processed.
    order: Vec<usize>,
    chosen: Vec<Vec<usize>>,
    /// Number of instances on each agent.
    instance_counts: Vec<usize>,
    steps: u32,
}

/// Returns the agents of each demand in ascending order; `None` if there is no solution, or none
/// was found within [`STEPS_MAX`] steps.
pub(super) fn search(demands: &[RoleDemand], agents: usize) -> Option<Vec<Vec<usize>>> {
    // First in the order of the plan, which gives the result that users expect; if that fails, with
    // the most constrained demand first.
    let plan_order: Vec<usize> = (0..demands.len()).collect();
    let mut constrained_first = plan_order.clone();
    constrained_first.sort_by_key(|&index| {
        demands[index].suitable_agents.len().saturating_sub(demands[index].count)
    });
    search_in_order(demands, agents, plan_order)
        .or_else(|| search_in_order(demands, agents, constrained_first))
}

fn search_in_order(
    demands: &[RoleDemand],
    agents: usize,
    order: Vec<usize>,
) -> Option<Vec<Vec<usize>>> {
    let chosen = vec![Vec::new(); demands.len()];
    let mut search =
        PlacementSearch { demands, order, chosen, instance_counts: vec![0; agents], steps: 0 };
    search.search_from(0).then(|| {
        search.chosen.iter_mut().for_each(|agents| agents.sort_unstable());
        search.chosen
    })
}

impl PlacementSearch<'_> {
    /// Chooses agents for the demands from this position of the order on. Returns true on success.
    fn search_from(&mut self, position: usize) -> bool {
        let Some(&demand) = self.order.get(position) else { return true };
        let demands = self.demands;
        let mut suitable = demands[demand].suitable_agents.clone();
        suitable.retain(|agent| !self.is_conflicting(demand, *agent));
        suitable.sort_by_key(|&agent| (self.instance_counts[agent], agent));
        self.try_agents(position, &suitable)
    }

    /// Returns true if an agent has an instance of a role that must be apart from this one.
    fn is_conflicting(&self, demand: usize, agent: usize) -> bool {
        let has = |other: usize| self.chosen[other].contains(&agent);
        let is_apart = |&other: &usize| {
            self.demands[demand].apart_from.contains(&other)
                || self.demands[other].apart_from.contains(&demand)
        };
        (0..self.demands.len()).filter(is_apart).any(has)
    }

    /// Chooses the missing agents of the demand at `position` from `suitable`, then those of all
    /// later demands. Returns true on success. Each set of agents is tried once, regardless of its
    /// order.
    fn try_agents(&mut self, position: usize, suitable: &[usize]) -> bool {
        let demand = self.order[position];
        let missing = self.demands[demand].count - self.chosen[demand].len();
        if missing == 0 {
            return self.search_from(position + 1);
        }
        for index in 0..(suitable.len() + 1).saturating_sub(missing) {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return false;
            }
            self.chosen[demand].push(suitable[index]);
            self.instance_counts[suitable[index]] += 1;
            if self.try_agents(position, &suitable[index + 1..]) {
                return true;
            }
            self.instance_counts[suitable[index]] -= 1;
            self.chosen[demand].pop();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;

    use super::*;

    fn want(count: usize, fit: &[usize], apart: &[usize]) -> RoleDemand {
        RoleDemand { count, suitable_agents: fit.to_vec(), apart_from: apart.to_vec() }
    }

    #[test]
    fn work_is_spread() {
        let all = [0, 1, 2, 3];
        let wants = [want(1, &all, &[]), want(2, &all, &[]), want(1, &all, &[])];
        assert_eq!(search(&wants, 4).unwrap(), [vec![0], vec![1, 2], vec![3]]);
    }

    #[test]
    fn a_choice_that_leaves_others_without_is_taken_back() {
        // The second requires agent 0, which the first would take without backtracking.
        let wants = [want(2, &[0, 1, 2], &[]), want(1, &[0, 1], &[0]), want(1, &[1], &[1])];
        assert_eq!(search(&wants, 3).unwrap(), [vec![1, 2], vec![0], vec![1]]);
    }

    #[test]
    fn the_largest_campaign_is_placed_at_once() {
        let all: Vec<_> = (0..1_025).collect();
        let wants = [want(1, &all, &[]), want(1_024, &all, &[0])];
        let placed = search(&wants, all.len()).unwrap();
        assert_eq!((placed[0].len(), placed[1].len()), (1, 1_024));
    }

    #[test]
    fn a_hopeless_search_ends() {
        let all: Vec<_> = (0..40).collect();
        let wants: Vec<_> = (0..5).map(|_| want(9, &all, &[0, 1, 2, 3, 4])).collect();
        assert_eq!(search(&wants, all.len()), None);
    }

    fn wants() -> impl Strategy<Value = Vec<RoleDemand>> {
        let one = (1_usize..4, btree_set(0_usize..6, 0..6), btree_set(0_usize..4, 0..3));
        vec(one, 1..5).prop_map(|wants| {
            let count = wants.len();
            let want = |(index, (count_of, fit, apart)): (
                usize,
                (usize, std::collections::BTreeSet<usize>, std::collections::BTreeSet<usize>),
            )| RoleDemand {
                count: count_of,
                suitable_agents: fit.into_iter().collect(),
                apart_from: apart
                    .into_iter()
                    .filter(|other| *other < count && *other != index)
                    .collect(),
            };
            wants.into_iter().enumerate().map(want).collect()
        })
    }

    /// All ways, one after the other.
    fn is_possible(wants: &[RoleDemand], taken: &mut Vec<u32>) -> bool {
        let at = taken.len();
        let Some(want) = wants.get(at) else { return true };
        (0_u32..64).any(|set| {
            let is_fit =
                (0..6).all(|agent| set >> agent & 1 == 0 || want.suitable_agents.contains(&agent));
            let is_apart = taken.iter().enumerate().all(|(other, others)| {
                let apart =
                    want.apart_from.contains(&other) || wants[other].apart_from.contains(&at);
                !apart || others & set == 0
            });
            if !(is_fit && is_apart && set.count_ones() as usize == want.count) {
                return false;
            }
            taken.push(set);
            let rest = is_possible(wants, taken);
            taken.pop();
            rest
        })
    }

    proptest! {
        #[test]
        fn what_is_possible_is_found(wants in wants()) {
            let found = search(&wants, 6);
            prop_assert_eq!(found.is_some(), is_possible(&wants, &mut Vec::new()));
            let Some(found) = found else { return Ok(()) };
            for (at, (want, agents)) in wants.iter().zip(&found).enumerate() {
                prop_assert_eq!(agents.len(), want.count);
                prop_assert!(agents.is_sorted() && agents.iter().all(|one| want.suitable_agents.contains(one)));
                for other in &want.apart_from {
                    prop_assert!(!agents.iter().any(|one| found[*other].contains(one)), "{at}");
                }
            }
        }
    }
}

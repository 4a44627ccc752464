//! Search of agents for roles: each role needs a number of different suitable ones, and some roles
//! must not share an agent. Agents with few instances are tried first, with backtracking if a
//! choice leaves others without; a search that takes too long ends without a result.

/// Largest number of choices of one agent for one instance, in total.
const STEPS_MAX: u32 = 200_000;

/// Demand of a role.
#[derive(Clone, Debug)]
pub(super) struct RoleDemand {
    /// Number of agents.
    pub(super) count: usize,
    /// Agents that are suitable.
    pub(super) fit: Vec<usize>,
    /// Other demands whose agents it must not share.
    pub(super) apart: Vec<usize>,
}

struct PlacementSearch<'a> {
    wants: &'a [RoleDemand],
    /// Demands in the order in which they are processed.
    order: Vec<usize>,
    chosen: Vec<Vec<usize>>,
    /// Number of instances on each agent.
    busy: Vec<usize>,
    steps: u32,
}

/// Returns the agents of each demand in ascending order; `None` if there is no solution, or none
/// was found in time.
pub(super) fn search(wants: &[RoleDemand], agents: usize) -> Option<Vec<Vec<usize>>> {
    // In the order of the plan first, as users expect; if that takes too long, the most constrained
    // demand first.
    let plan_order: Vec<usize> = (0..wants.len()).collect();
    let mut by_choice = plan_order.clone();
    by_choice.sort_by_key(|&at| wants[at].fit.len().saturating_sub(wants[at].count));
    in_order(wants, agents, plan_order).or_else(|| in_order(wants, agents, by_choice))
}

fn in_order(wants: &[RoleDemand], agents: usize, order: Vec<usize>) -> Option<Vec<Vec<usize>>> {
    let chosen = vec![Vec::new(); wants.len()];
    let mut search = PlacementSearch { wants, order, chosen, busy: vec![0; agents], steps: 0 };
    search.assign_roles(0).then(|| {
        search.chosen.iter_mut().for_each(|agents| agents.sort_unstable());
        search.chosen
    })
}

impl PlacementSearch<'_> {
    /// Returns true if agents were found for the demands from this position of the order on.
    fn assign_roles(&mut self, at: usize) -> bool {
        let Some(&want) = self.order.get(at) else { return true };
        let wants = self.wants;
        let mut fit = wants[want].fit.clone();
        fit.retain(|agent| !self.meets(want, *agent));
        fit.sort_by_key(|&agent| (self.busy[agent], agent));
        self.choose(at, &fit)
    }

    /// Returns true if an agent has an instance of a role that must be apart from this one.
    fn meets(&self, want: usize, agent: usize) -> bool {
        let has = |other: usize| self.chosen[other].contains(&agent);
        let is_apart = |&other: &usize| {
            self.wants[want].apart.contains(&other) || self.wants[other].apart.contains(&want)
        };
        (0..self.wants.len()).filter(is_apart).any(has)
    }

    /// Returns true if a choice of agents was found for this and all later demands. Chooses one
    /// more agent for this demand, or continues with the next one. A set of agents is tried once,
    /// not in each order.
    fn choose(&mut self, at: usize, fit: &[usize]) -> bool {
        let want = self.order[at];
        let missing = self.wants[want].count - self.chosen[want].len();
        if missing == 0 {
            return self.assign_roles(at + 1);
        }
        for index in 0..(fit.len() + 1).saturating_sub(missing) {
            self.steps += 1;
            if self.steps > STEPS_MAX {
                return false;
            }
            self.chosen[want].push(fit[index]);
            self.busy[fit[index]] += 1;
            if self.choose(at, &fit[index + 1..]) {
                return true;
            }
            self.busy[fit[index]] -= 1;
            self.chosen[want].pop();
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
        RoleDemand { count, fit: fit.to_vec(), apart: apart.to_vec() }
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
                fit: fit.into_iter().collect(),
                apart: apart
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
            let is_fit = (0..6).all(|agent| set >> agent & 1 == 0 || want.fit.contains(&agent));
            let is_apart = taken.iter().enumerate().all(|(other, others)| {
                let apart = want.apart.contains(&other) || wants[other].apart.contains(&at);
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
                prop_assert!(agents.is_sorted() && agents.iter().all(|one| want.fit.contains(one)));
                for other in &want.apart {
                    prop_assert!(!agents.iter().any(|one| found[*other].contains(one)), "{at}");
                }
            }
        }
    }
}

//! The counts of all edges from those of some, by conservation of flow.

/// The edges that were not counted contain a cycle, so their counts do not follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Unsolved;

/// The counts of all edges of a graph with this number of nodes. Each edge has its two nodes, from
/// and to. As many transfers arrive at each node as leave it. `counted` are the edges that were
/// counted, by index, and their counts.
///
/// # Errors
/// The edges that were not counted contain a cycle.
///
/// # Panics
/// If an index is out of range.
pub fn solve(
    nodes: usize,
    edges: &[(usize, usize)],
    counted: &[(usize, u64)],
) -> Result<Vec<i128>, Unsolved> {
    let mut counts: Vec<Option<i128>> = vec![None; edges.len()];
    for &(edge, count) in counted {
        counts[edge] = Some(count.into());
    }
    // For each node, the arrivals minus the departures along edges with a count, and the others.
    // With fewer than 2^32 edges of less than 2^64 transfers, a sum is below 2^96.
    let mut excess = vec![0_i128; nodes];
    let mut open: Vec<Vec<usize>> = vec![Vec::new(); nodes];
    for (index, (&(from, to), count)) in edges.iter().zip(&counts).enumerate() {
        match count {
            Some(count) => {
                excess[to] += count;
                excess[from] -= count;
            }
            None => {
                open[from].push(index);
                open[to].push(index);
            }
        }
    }
    let mut work: Vec<usize> = (0..nodes).filter(|&node| open[node].len() == 1).collect();
    while let Some(node) = work.pop() {
        let Some(edge) = open[node].pop() else {
            continue;
        };
        let (from, to) = edges[edge];
        let (count, other) = if node == to {
            (-excess[node], from)
        } else {
            (excess[node], to)
        };
        counts[edge] = Some(count);
        excess[to] += count;
        excess[from] -= count;
        open[other].retain(|&other| other != edge);
        if open[other].len() == 1 {
            work.push(other);
        }
    }
    let all: Option<Vec<i128>> = counts.into_iter().collect();
    all.ok_or(Unsolved)
}

//! Globs: `*` for any text, `?` for any one character.

/// Whether the whole of `text` matches.
pub(super) fn matches(glob: &str, text: &str) -> bool {
    let (glob, text) = (glob.as_bytes(), text.as_bytes());
    let (mut g, mut t) = (0, 0);
    // Where to go on when what follows the last star fails: one more character for the star.
    let mut retry = None;
    while t < text.len() {
        match glob.get(g) {
            Some(b'*') => {
                retry = Some((g + 1, t));
                g += 1;
            }
            Some(&c) if c == b'?' || c == text[t] => {
                g += 1;
                t += 1;
            }
            _ => match retry {
                Some((after_star, from)) => {
                    retry = Some((after_star, from + 1));
                    (g, t) = (after_star, from + 1);
                }
                None => return false,
            },
        }
    }
    glob[g..].iter().all(|&c| c == b'*')
}

//! Divides the lines of the screen, however few there are.

/// The number of lines of each part, from the top: header, table head, rows, detail, status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) header: u16,
    pub(super) table_head: u16,
    pub(super) rows: u16,
    pub(super) detail: u16,
    pub(super) status: u16,
}

impl Layout {
    /// Assigns the lines by priority: rows, the status, the table's head, the header, and the
    /// detail of the selected row. The detail gets as many lines as fit if `is_detailed`, else
    /// `brief` lines.
    pub(super) fn of(height: u16, header: u16, is_detailed: bool, brief: u16) -> Self {
        /// Lines for all details of a row, including source code.
        const DETAIL: u16 = 12;
        let mut left = height.saturating_sub(1);
        let mut take = |most: u16| {
            let taken = most.min(left);
            left -= taken;
            taken
        };
        let (status, table_head) = (take(1), take(1));
        // The table keeps three rows before the other parts get any.
        let spare = take(2);
        let header = take(header);
        let detail = if is_detailed {
            take(DETAIL.min(1 + height / 3))
        } else {
            take(brief.min(1 + height / 6))
        };
        let rows = height.min(1) + spare + left;
        Self {
            header,
            table_head,
            rows,
            detail,
            status,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;

    #[test]
    fn every_line_is_given_away_exactly_once() {
        for height in 0..50 {
            let Layout {
                header,
                table_head,
                rows,
                detail,
                status,
            } = Layout::of(height, 3, height % 2 == 0, 1 + height % 4);
            assert_eq!(header + table_head + rows + detail + status, height);
            assert!(height == 0 || rows > 0);
        }
        let all = Layout {
            header: 3,
            table_head: 1,
            rows: 18,
            detail: 1,
            status: 1,
        };
        assert_eq!(Layout::of(24, 3, false, 1), all);
    }
}

//! Faults and their close codes.

use super::*;

#[test]
fn faults_are_answered_by_three_codes() {
    for &fault in WebSocketFault::ALL {
        assert!([1002, 1007, 1009].contains(&fault.close_code()));
        assert!(is_close_code(fault.close_code()));
        assert_eq!(
            fault.to_string(),
            format!("{} ({})", fault.text(), fault.close_code())
        );
    }
}

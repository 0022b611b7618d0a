//! The behaviour that POSIX demands of each function.

use crate::common::run_all;

#[test]
fn requests_and_their_status() {
    run_all(
        "status.c",
        &[
            (
                "a_cached_read_is_done_within_the_call",
                "glibc gives every request to a thread",
            ),
            (
                "a_reused_number_has_a_new_history",
                "glibc gives every request to a thread",
            ),
            (
                "a_reused_number_is_tried_after_a_refusal",
                "glibc gives every request to a thread",
            ),
            (
                "a_block_that_was_never_submitted_is_invalid",
                "glibc takes the content of the block for its status, which POSIX allows",
            ),
        ],
        &[],
    );
}

#[test]
fn bad_input() {
    run_all(
        "errors.c",
        &[
            (
                "argument_errors_fail_the_call",
                "glibc reports EINVAL by aio_error, which POSIX allows",
            ),
            (
                "bad_offsets_sizes_and_priorities",
                "glibc passes sizes beyond SSIZE_MAX to pread(2), which shortens them",
            ),
            (
                "wild_notifications",
                "glibc accepts them, and sends no notification or calls a null function",
            ),
            ("null_blocks", "glibc reads them"),
            (
                "a_block_in_flight_is_left_alone",
                "glibc queues it a second time and loses its status",
            ),
            ("lists", "glibc passes bad operations to a thread"),
            ("a_list_that_is_too_long", "glibc has no limit"),
            ("too_many_requests_are_eagain", "glibc has no limit"),
        ],
        &[("NOWAIT_AIO_DEPTH", "4")],
    );
}

#[test]
fn waiting() {
    run_all(
        "suspend.c",
        &[
            (
                "times_out_of_range",
                "glibc's futex wait ends the process for some of them",
            ),
            (
                "a_restarting_handler_interrupts_it",
                "without a timeout glibc's futex wait is restarted by the kernel",
            ),
            (
                "signals_of_requests_restart_it_before_its_time",
                "with a timeout glibc's futex wait ends after any handler",
            ),
            (
                "it_works_in_a_handler_that_interrupts_any_function",
                "glibc's aio_suspend takes a lock that the interrupted function may have",
            ),
        ],
        &[],
    );
}

#[test]
fn notification() {
    run_all(
        "notify.c",
        &[
            (
                "a_bad_entry_stops_no_other_request_of_a_list",
                "glibc passes bad operations to a thread",
            ),
            (
                "a_signal_ends_the_wait_for_a_list_and_nothing_else",
                "glibc frees the list that its threads still point to, and crashes",
            ),
            (
                "a_full_signal_queue_delays_no_other_request",
                "glibc ignores an error of the call that queues the signal",
            ),
            (
                "a_full_signal_queue_loses_nothing",
                "glibc ignores an error of the call that queues the signal",
            ),
        ],
        &[],
    );
}

#[test]
fn cancelling() {
    const BEGUN: &str = "a thread of glibc is in read(2) already, which cannot be cancelled";
    run_all(
        "cancel.c",
        &[
            ("the_first_waiting_request", BEGUN),
            ("all_requests_on_a_file_and_no_other", BEGUN),
            ("cancelled_requests_notify", BEGUN),
            ("a_waiting_thread_is_woken", BEGUN),
            ("odd_arguments", BEGUN),
            (
                "a_named_request_whose_number_was_reused",
                "glibc reads the number's file when the request's turn comes",
            ),
            (
                "requests_of_another_file_with_the_same_number_stay",
                "glibc identifies files by their numbers",
            ),
        ],
        &[],
    );
}

#[test]
fn order() {
    run_all(
        "order.c",
        &[(
            "blocked_pipes_delay_no_other_request",
            "glibc has twenty threads, which are all in blocked reads",
        )],
        &[],
    );
}

#[test]
fn files_of_every_kind() {
    run_all(
        "kinds.c",
        &[(
            "many_waiting_requests_delay_no_other",
            "glibc has twenty threads, which are all in blocked reads",
        )],
        &[],
    );
}

#[test]
fn descriptors() {
    const BY_NUMBER: &str = "glibc uses the number when the request's turn comes";
    run_all(
        "files.c",
        &[
            ("a_request_outlives_its_descriptor", BY_NUMBER),
            ("a_reused_number_is_another_file", BY_NUMBER),
            ("the_program_may_close_everything", BY_NUMBER),
        ],
        &[],
    );
}

#[test]
fn details_of_posix() {
    run_all(
        "posix.c",
        &[
            (
                "a_pipe_and_a_socket_have_nothing_to_synchronise",
                "glibc reports it by aio_error, after the reads before it",
            ),
            (
                "the_programs_fields_stay",
                "glibc stores the operation in aio_lio_opcode",
            ),
        ],
        &[],
    );
}

#[test]
fn forked_children() {
    const GONE: &str = "in a child glibc waits for threads of the parent";
    run_all(
        "fork.c",
        &[
            ("a_child_of_a_parent_that_used_it", GONE),
            ("grandchildren", GONE),
            ("by_clone_alone", GONE),
            ("the_parents_requests_do_not_exist", GONE),
            ("forks_while_threads_submit", GONE),
            ("forks_while_threads_start", GONE),
            ("a_child_has_no_more_descriptors", GONE),
        ],
        &[],
    );
}

#[test]
fn hostile_programs() {
    const HANDLER: &str = "glibc's functions take a lock that the interrupted function may have";
    run_all(
        "hostile.c",
        &[
            (
                "a_segmentation_fault_can_be_survived",
                "glibc reads the block with its lock taken",
            ),
            ("cancelling_in_a_handler", HANDLER),
            ("resubmitting_in_a_notification", HANDLER),
            (
                "forking_with_requests_in_flight",
                "in a child glibc waits for threads of the parent",
            ),
        ],
        &[],
    );
}

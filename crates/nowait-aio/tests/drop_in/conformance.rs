//! What POSIX says of each function, in C programs that know nothing of the library.

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
                "a_number_that_was_a_cold_file_tries_its_next_file",
                "glibc gives every request to a thread",
            ),
            (
                "a_block_that_was_never_submitted_is_invalid",
                "glibc takes whatever the block holds for its status; POSIX lets it",
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
                "argument_errors_are_said_at_the_call",
                "glibc says EINVAL through aio_error, as POSIX lets it",
            ),
            (
                "bad_offsets_sizes_and_priorities",
                "glibc passes sizes beyond SSIZE_MAX to pread(2), which cuts them",
            ),
            (
                "wild_notifications",
                "glibc takes them and tells nobody, or calls a null function",
            ),
            ("null_blocks", "glibc looks into them"),
            (
                "a_block_in_flight_is_left_alone",
                "glibc queues it a second time and loses its status",
            ),
            ("lists", "glibc passes bad operations to a thread"),
            ("a_list_that_is_too_long", "glibc has no limit"),
            ("a_full_library_says_eagain", "glibc has no limit"),
        ],
        &[("NOWAIT_AIO_DEPTH", "4")],
    );
}

#[test]
fn suspending() {
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
                "it_works_wherever_its_handler_interrupts",
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
                "a_list_with_a_bad_entry_does_the_others_and_tells",
                "glibc passes bad operations to a thread",
            ),
            (
                "a_signal_ends_the_wait_for_a_list_and_nothing_else",
                "glibc frees the list that its threads still point to, and crashes",
            ),
            (
                "a_full_signal_queue_holds_up_nobody",
                "glibc does not look whether the signal could be queued",
            ),
            (
                "a_full_signal_queue_loses_nothing",
                "glibc does not look whether the signal could be queued",
            ),
        ],
        &[],
    );
}

#[test]
fn cancelling() {
    const BEGUN: &str = "a thread of glibc's is in read(2) already and can't be called back";
    run_all(
        "cancel.c",
        &[
            ("also_the_first_one", BEGUN),
            ("all_of_a_file_and_of_no_other", BEGUN),
            ("the_cancelled_tell", BEGUN),
            ("a_waiting_thread_is_woken", BEGUN),
            ("odd_arguments", BEGUN),
            (
                "a_named_request_of_a_number_that_was_given_away",
                "glibc reads the number's file when the request's turn comes",
            ),
            (
                "another_file_of_the_same_number_is_another_file",
                "glibc knows files by their numbers",
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
            "blocked_pipes_starve_nobody",
            "twenty blocked reads are all the threads that glibc has",
        )],
        &[],
    );
}

#[test]
fn files_of_every_kind() {
    run_all(
        "kinds.c",
        &[(
            "many_that_wait_keep_nothing_waiting",
            "twenty blocked reads are all the threads that glibc has",
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
            ("a_number_that_is_given_away_is_another_file", BY_NUMBER),
            ("the_program_may_close_everything", BY_NUMBER),
        ],
        &[],
    );
}

#[test]
fn sentences_of_posix() {
    run_all(
        "posix.c",
        &[
            (
                "a_pipe_and_a_socket_have_nothing_to_synchronise",
                "glibc says so through aio_error, after the reads that came before",
            ),
            (
                "the_programs_fields_stay",
                "glibc keeps in aio_lio_opcode what it is to do",
            ),
        ],
        &[],
    );
}

#[test]
fn forked_children() {
    const GONE: &str = "in a child glibc waits for threads that stayed in the parent";
    run_all(
        "fork.c",
        &[
            ("a_child_of_a_parent_that_used_it", GONE),
            ("grandchildren", GONE),
            ("by_clone_alone", GONE),
            ("the_parents_requests_are_not_there", GONE),
            ("forks_while_threads_are_at_it", GONE),
            ("forks_while_threads_start", GONE),
            ("a_child_has_no_more_descriptors", GONE),
        ],
        &[],
    );
}

#[test]
fn hostile_programs() {
    const HANDLER: &str = "glibc's functions take a lock that the interrupted one may have";
    run_all(
        "hostile.c",
        &[
            (
                "a_segmentation_fault_can_be_survived",
                "glibc looks at the block with its lock taken",
            ),
            ("cancelling_in_a_handler", HANDLER),
            ("submitting_again_when_told", HANDLER),
            (
                "forking_in_the_middle",
                "in a child glibc waits for threads that stayed in the parent",
            ),
        ],
        &[],
    );
}

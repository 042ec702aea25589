from topotune.plan.describe import params_in_words


def test_trees_are_counted_and_equal_weights_go_without_saying():
    down = [[-1, 0, 0, 0], [1, -1, 1, 1]]
    words = params_in_words({"pieces": 4, "weights": [1, 1], "down": down, "up": down})
    assert words == {"pieces": "4", "trees": "2"}


def test_unequal_weights_are_said_and_cut_where_they_are_many():
    assert params_in_words({"weights": [1, 2]}) == {"weights": "1 2"}
    assert params_in_words({"weights": list(range(1, 10))}) == {"weights": "1 2 3 4 5 6 7 8 …"}


def test_groups_of_many_ranks_are_counted():
    assert params_in_words({"groups": [[0, 1], [2, 3]]}) == {"groups": "0 1 | 2 3"}
    many = [list(range(8 * node, 8 * node + 8)) for node in range(32)]
    assert params_in_words({"groups": many}) == {"groups": "32 groups of 8"}

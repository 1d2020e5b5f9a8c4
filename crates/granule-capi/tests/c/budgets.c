/* Tenants, soft limits, spill hooks. */
#include "check.h"

static int crossings;
static granule_budget_event last;
static void *spillable;
static granule_allocator *spilling;

static void on_budget(void *user, const granule_budget_event *event) {
    CHECK(user == &crossings && event->size == sizeof *event);
    crossings += 1;
    last = *event;
}

static uint64_t make_room(void *user, const granule_spill_request *request) {
    CHECK(user == NULL && request->size == sizeof *request && request->tenant == 1);
    CHECK(request->shortage == GRANULE_SHORTAGE_TENANT && request->missing > 0);
    if (spillable == NULL) {
        return 0;
    }
    OK(granule_free(spilling, spillable));
    spillable = NULL;
    return 30 * MIB;
}

static void tenants(void) {
    granule_allocator *a = make("");
    granule_pool_id pool = granule_pool_fresh();
    granule_filter all = {sizeof all, GRANULE_FILTER_ALWAYS, 0, NULL, NULL, NULL};
    OK(granule_pool_create(a, 0, pool, NULL));
    granule_budget budget = {sizeof budget, UINT64_MAX, 48 * MIB, 80 * MIB};
    uint64_t tenant = 0, found = 7, count = 0;
    OK(granule_tenant_create(a, 0, "serving", &budget, &tenant));
    CHECK(tenant == 1);
    ANSWERS(GRANULE_BUDGET, granule_tenant_create(a, 0, "serving", &budget, &found));
    OK(granule_tenant_of(a, 0, pool, &found));
    CHECK(found == 0);
    ANSWERS(GRANULE_BUDGET, granule_tenant_join(a, 2, pool));
    ANSWERS(GRANULE_BUDGET, granule_tenant_join(a, 0, pool));
    OK(granule_tenant_join(a, tenant, pool));
    OK(granule_tenant_of(a, 0, pool, &found));
    CHECK(found == tenant);
    OK(granule_tenant_list(a, 0, &found, 1, &count));
    CHECK(count == 1 && found == tenant);
    granule_pool_id of_tenant = {0, 0};
    OK(granule_tenant_pools(a, tenant, &of_tenant, 1, &count));
    CHECK(count == 1 && of_tenant.second == pool.second);
    granule_bytes name = {NULL, 0, NULL};
    OK(granule_tenant_name(a, tenant, &name));
    CHECK(strcmp((const char *)name.data, "serving") == 0);
    granule_bytes_free(&name);

    OK(granule_add_budget_observer(a, on_budget, &crossings));
    spilling = a;
    OK(granule_add_spill_hook(a, 0, make_room, NULL));
    OK(granule_pool_begin(a, 0, pool, &all));
    spillable = take(a, 30 * MIB, 0);
    void *second = take(a, 30 * MIB, 0);
    CHECK(crossings == 1 && last.owner == GRANULE_OWNER_TENANT && last.tenant == tenant);
    CHECK(last.soft == 48 * MIB && last.hard == 80 * MIB);
    /* What is taken from the device is whole granules, or exactly that. */
    CHECK(last.wanted >= 30 * MIB && last.wanted < 36 * MIB && last.held >= 30 * MIB && last.held < 36 * MIB);
    void *third = take(a, 30 * MIB, 0);
    CHECK(spillable == NULL);
    void *none = NULL;
    ANSWERS(GRANULE_OUT_OF_MEMORY, granule_malloc(a, 30 * MIB, 0, 0, &none));
    granule_tenant_stats_t stats = {0};
    stats.size = sizeof stats;
    OK(granule_tenant_stats(a, tenant, &stats));
    CHECK(stats.held >= 60 * MIB && stats.held <= 80 * MIB);
    CHECK(stats.spills == 1 && stats.spilled_bytes == 30 * MIB && stats.refusals == 1);
    CHECK(stats.guarantee == 0 && stats.soft == 48 * MIB && stats.hard == 80 * MIB);
    budget.soft = 90 * MIB;
    ANSWERS(GRANULE_BUDGET, granule_tenant_set_budget(a, tenant, &budget));
    budget.hard = UINT64_MAX;
    OK(granule_tenant_set_budget(a, tenant, &budget));
    OK(granule_pool_end(a, 0, pool));
    OK(granule_tenant_leave(a, 0, pool));
    OK(granule_tenant_remove(a, tenant));
    ANSWERS(GRANULE_BUDGET, granule_tenant_stats(a, tenant, &stats));
    OK(granule_free(a, second));
    OK(granule_free(a, third));
    OK(granule_pool_release(a, 0, pool));
    OK(granule_pool_release(a, 0, pool));
    OK(granule_allocator_destroy(a));
}

int main(void) {
    tenants();
    return 0;
}
